/* A value of every kind of WIT type, passed on to an imported mirror and back.
 *
 * A value arrives flat, goes out flat to the mirror, comes back through memory (or flat, where it
 * fits one value) and leaves the same way. Resources are the mirror's own.
 */
#include "cabi.h"

#define MIRROR "demo:types/mirror"
#define ECHO "demo:types/echo"
#define ANSWER_BYTES_MAX 160u

static alignas(8) unsigned char answer[ANSWER_BYTES_MAX];

#define LIST(...) __VA_ARGS__

/* One flat value in, one flat value out. */
#define RELAY_FLAT(id, name, type)                                                                 \
    IMPORT(MIRROR, name) type mirror_##id(type value);                                             \
    EXPORT(ECHO "#" name) type echo_##id(type value) { return mirror_##id(value); }

/* Several flat values in, or one address where they do not fit; the answer is in memory. */
#define RELAY_MEMORY(id, name, parameters, arguments)                                              \
    IMPORT(MIRROR, name) void mirror_##id(LIST parameters, void *result);                          \
    EXPORT(ECHO "#" name) void *echo_##id(LIST parameters) {                                       \
        mirror_##id(LIST arguments, answer);                                                       \
        return answer;                                                                             \
    }                                                                                              \
    EXPORT("cabi_post_" ECHO "#" name) void done_##id(void *result) {                              \
        (void)result;                                                                              \
        arena_reset();                                                                             \
    }

#define RELAY_LIST(id, name)                                                                       \
    RELAY_MEMORY(id, name, (const void *items, uint32_t length), (items, length))

IMPORT(MIRROR, "nothing")
void mirror_nothing(void);

EXPORT(ECHO "#nothing")
void echo_nothing(void) {
    mirror_nothing();
}

RELAY_FLAT(bool, "of-bool", uint32_t)
RELAY_FLAT(u8, "of-u8", uint32_t)
RELAY_FLAT(u16, "of-u16", uint32_t)
RELAY_FLAT(u32, "of-u32", uint32_t)
RELAY_FLAT(u64, "of-u64", uint64_t)
RELAY_FLAT(s8, "of-s8", int32_t)
RELAY_FLAT(s16, "of-s16", int32_t)
RELAY_FLAT(s32, "of-s32", int32_t)
RELAY_FLAT(s64, "of-s64", int64_t)
RELAY_FLAT(f32, "of-f32", float)
RELAY_FLAT(f64, "of-f64", double)
RELAY_FLAT(char, "of-char", uint32_t)
RELAY_FLAT(color, "of-color", uint32_t)
RELAY_FLAT(rights, "of-rights", uint32_t)
RELAY_FLAT(days, "of-days", uint32_t)
RELAY_FLAT(seats, "of-seats", uint32_t)
RELAY_FLAT(result_bare, "of-result-bare", uint32_t)

RELAY_LIST(string, "of-string")
RELAY_LIST(bytes, "of-bytes")
RELAY_LIST(numbers, "of-numbers")
RELAY_LIST(strings, "of-strings")
RELAY_LIST(samples, "of-samples")
RELAY_LIST(shapes, "of-shapes")

RELAY_MEMORY(point, "of-point", (int32_t x, double y), (x, y))
RELAY_MEMORY(sample, "of-sample",
             (uint32_t flag, int32_t tiny, uint32_t letter, uint64_t wide, const void *label,
              uint32_t label_length, const void *raw, uint32_t raw_length, int32_t x, double y),
             (flag, tiny, letter, wide, label, label_length, raw, raw_length, x, y))
RELAY_MEMORY(wide, "of-wide", (const void *record), (record))
RELAY_MEMORY(tuple, "of-tuple",
             (uint32_t first, const void *second, uint32_t second_length, float third),
             (first, second, second_length, third))
/* The payloads of the cases share their flat values, each as wide as the widest of them. */
RELAY_MEMORY(shape, "of-shape", (uint32_t shape, uint64_t first, uint64_t second),
             (shape, first, second))
RELAY_MEMORY(option, "of-option", (uint32_t some, uint32_t value), (some, value))
RELAY_MEMORY(option_string, "of-option-string",
             (uint32_t some, const void *value, uint32_t length), (some, value, length))
RELAY_MEMORY(nested_option, "of-nested-option", (uint32_t some, uint32_t inner, uint32_t value),
             (some, inner, value))
RELAY_MEMORY(result, "of-result", (uint32_t failed, uint32_t first, uint32_t second),
             (failed, first, second))
RELAY_MEMORY(result_ok, "of-result-ok", (uint32_t failed, const void *value, uint32_t length),
             (failed, value, length))
RELAY_MEMORY(result_err, "of-result-err", (uint32_t failed, uint32_t color), (failed, color))

typedef uint32_t token_t; /* a handle; 0 is none */

IMPORT(MIRROR, "[constructor]token")
token_t token_new(const char *label, uint32_t length);

IMPORT(MIRROR, "[method]token.label")
void token_label(token_t self, string_t *result);

IMPORT(MIRROR, "[method]token.absorb")
void token_absorb(token_t self, token_t other, string_t *result);

IMPORT(MIRROR, "[static]token.join")
token_t token_join(token_t left, token_t right);

IMPORT(MIRROR, "[resource-drop]token")
void token_drop(token_t self);

IMPORT(MIRROR, "of-own")
token_t mirror_own(token_t token);

IMPORT(MIRROR, "of-borrow")
void mirror_borrow(token_t token, string_t *result);

EXPORT(ECHO "#tokens")
string_list_t *echo_tokens(const char *label, uint32_t length) {
    static string_t labels[5];
    static string_list_t result = {labels, 5};
    token_t first = token_new(label, length);
    token_label(first, &labels[0]);
    mirror_borrow(first, &labels[1]);
    token_t returned = mirror_own(first);
    token_label(returned, &labels[2]);
    token_t second = token_new("second", 6);
    token_t joined = token_join(returned, second);
    token_label(joined, &labels[3]);
    token_absorb(joined, second, &labels[4]);
    token_drop(returned);
    token_drop(joined);
    return &result;
}

EXPORT("cabi_post_" ECHO "#tokens")
void done_tokens(string_list_t *result) {
    (void)result;
    arena_reset();
}

static token_t kept;

EXPORT(ECHO "#keep")
string_t *echo_keep(const char *label, uint32_t length) {
    static string_t result;
    if (kept != 0)
        token_drop(kept);
    kept = token_new(label, length);
    token_label(kept, &result);
    return &result;
}

EXPORT("cabi_post_" ECHO "#keep")
void done_keep(string_t *result) {
    (void)result;
    arena_reset();
}

typedef struct {
    uint8_t some;
    string_t label;
} optional_label_t;

EXPORT(ECHO "#kept")
optional_label_t *echo_kept(void) {
    static optional_label_t result;
    result.some = kept != 0;
    if (result.some)
        token_label(kept, &result.label);
    return &result;
}

EXPORT("cabi_post_" ECHO "#kept")
void done_kept(optional_label_t *result) {
    (void)result;
    arena_reset();
}
