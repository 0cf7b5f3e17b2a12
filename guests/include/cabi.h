/* The canonical ABI for guests written in C by hand: wasm32, no libc, no generated bindings.
 *
 * A string or a list is a pointer and a length. A function takes up to 16 flat parameters and
 * returns one flat result; what does not fit goes through memory: an import gets the address of
 * its result as a last parameter, an export returns the address of its own.
 *
 * Memory is one arena. The host allocates what it passes in through `cabi_realloc`; a guest
 * allocates what it returns with `arena_take`; the post-return function of an export gives all of
 * it back with `arena_reset`, so nothing but static variables outlives a call.
 */
#ifndef CABI_H
#define CABI_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMPORT(interface, name) __attribute__((import_module(interface), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct {
    const char *bytes;
    uint32_t length;
} string_t;

typedef struct {
    string_t *items;
    uint32_t length;
} string_list_t;

#define LITERAL(text) ((string_t){(text), sizeof(text) - 1})

#define PAGE_BYTES 65536u

extern unsigned char __heap_base;
static uintptr_t arena_end;

static inline uintptr_t aligned(uintptr_t address, uint32_t alignment) {
    return (address + alignment - 1) & ~(uintptr_t)(alignment - 1);
}

static inline void arena_reset(void) {
    arena_end = aligned((uintptr_t)&__heap_base, 16);
}

static inline void copy_bytes(void *to, const void *from, uint32_t length) {
    __builtin_memcpy(to, from, length);
}

/* Memory for `length` bytes; traps when the machine's memory cannot grow any more. */
static inline void *arena_take(uint32_t alignment, uint32_t length) {
    if (arena_end == 0)
        arena_reset();
    uintptr_t start = aligned(arena_end, alignment);
    uintptr_t available = __builtin_wasm_memory_size(0) * PAGE_BYTES;
    arena_end = start + length;
    if (arena_end > available) {
        uintptr_t pages = (arena_end - available + PAGE_BYTES - 1) / PAGE_BYTES;
        if (__builtin_wasm_memory_grow(0, pages) == SIZE_MAX)
            __builtin_trap();
    }
    return (void *)start;
}

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, uint32_t old_length, uint32_t alignment, uint32_t length) {
    void *moved = arena_take(alignment, length);
    copy_bytes(moved, old, old_length < length ? old_length : length);
    return moved;
}

#endif
