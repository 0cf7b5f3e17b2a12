/* Text built piece by piece in the arena of cabi.h. */
#ifndef TEXT_H
#define TEXT_H

#include "cabi.h"

typedef struct {
    char *bytes;
    uint32_t length;
    uint32_t capacity;
} text_t;

static inline void text_add(text_t *text, string_t piece) {
    uint32_t length = text->length + piece.length;
    if (length > text->capacity) {
        char *moved = arena_take(1, 2 * length);
        copy_bytes(moved, text->bytes, text->length);
        text->bytes = moved;
        text->capacity = 2 * length;
    }
    copy_bytes(text->bytes + text->length, piece.bytes, piece.length);
    text->length = length;
}

static inline void text_add_number(text_t *text, uint64_t number) {
    char digits[20];
    uint32_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    text_add(text, (string_t){digits + first, sizeof digits - first});
}

static inline string_t text_done(const text_t *text) {
    return (string_t){text->bytes, text->length};
}

#endif
