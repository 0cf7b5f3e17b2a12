/* A counter that lives in memory, and charges: the guest of the crash tests. */
#include "cabi.h"
#include "text.h"

#define API "demo:counter/api"

typedef struct {
    uint8_t refused;
    string_t answer; /* the reference, or the reason of the refusal */
} charge_result_t;

typedef struct {
    uint64_t seconds;
    uint32_t nanoseconds;
} datetime_t;

IMPORT("demo:bank/api", "charge")
void bank_charge(const char *who, uint32_t who_length, uint64_t cents, charge_result_t *result);

IMPORT("wasi:random/random@0.2.0", "get-random-u64")
uint64_t random_u64(void);

IMPORT("wasi:clocks/wall-clock@0.2.0", "now")
void wall_clock_now(datetime_t *result);

static uint32_t count;

EXPORT(API "#add")
uint32_t api_add(uint32_t n) {
    return count += n;
}

EXPORT(API "#get")
uint32_t api_get(void) {
    return count;
}

static string_t charge_once(const char *who, uint32_t who_length, uint32_t cents) {
    text_t line = {0};
    charge_result_t charge;
    bank_charge(who, who_length, cents, &charge);
    if (charge.refused) {
        text_add(&line, LITERAL("refused: "));
        text_add(&line, charge.answer);
        return text_done(&line);
    }
    count += 1;
    text_add(&line, charge.answer);
    text_add(&line, LITERAL(" "));
    text_add_number(&line, random_u64());
    datetime_t now;
    wall_clock_now(&now);
    text_add(&line, LITERAL(" "));
    text_add_number(&line, now.seconds);
    return text_done(&line);
}

EXPORT(API "#charge-many")
string_list_t *api_charge_many(const char *who, uint32_t who_length, uint32_t n) {
    static string_list_t lines;
    lines.items = arena_take(alignof(string_t), n * sizeof(string_t));
    lines.length = n;
    for (uint32_t i = 0; i < n; i++)
        lines.items[i] = charge_once(who, who_length, i + 1);
    return &lines;
}

EXPORT("cabi_post_" API "#charge-many")
void api_charge_many_done(string_list_t *lines) {
    (void)lines;
    arena_reset();
}

EXPORT(API "#fail")
void api_fail(void) {
    __builtin_trap();
}

EXPORT(API "#spin")
void api_spin(void) {
    for (volatile uint32_t turns = 0;; turns++) {
    }
}
