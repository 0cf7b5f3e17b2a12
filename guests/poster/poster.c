/* Remote writes beside the guest, and what a guest may do while they are under way. The steps are
 * those of wit/poster.wit. */
#include "http.h"
#include "text.h"

#define API "demo:poster/api"
#define HOST "golem:api/host@1.1.6"

enum { SLOTS = 10 };

IMPORT("demo:poster/peer", "ask") uint32_t ask(uint32_t n);
IMPORT(HOST, "get-oplog-index") uint64_t own_index(void);
IMPORT(HOST, "set-oplog-index") void jump(uint64_t index);
IMPORT(HOST, "mark-begin-operation") uint64_t begin_region(void);
IMPORT(HOST, "mark-end-operation") void end_region(uint64_t begin);
IMPORT(HOST, "set-idempotence-mode") void set_mode(uint32_t on);
IMPORT("wasi:cli/exit@0.2.0", "exit") void leave(uint32_t failed);

static uint32_t futures[SLOTS];
static uint64_t registers[SLOTS];
static uint32_t answered;

static void begin_post(string_t authority, uint32_t slot) {
    const char path[] = {'/', (char)('0' + slot)};
    uint32_t request = new_request(new_fields());
    if (set_method(request, POST, NULL, 0) || set_scheme(request, SOME, HTTP, NULL, 0) ||
        set_authority(request, SOME, authority.bytes, authority.length) ||
        set_path(request, SOME, path, sizeof path))
        __builtin_trap();
    futures[slot] = future_of(request);
    if (futures[slot] == 0)
        __builtin_trap();
}

static uint32_t await_post(uint32_t slot) {
    uint32_t pollable = subscribe(futures[slot]);
    indices_t ready;
    poll(&pollable, 1, &ready);
    drop_pollable(pollable);
    got_t got;
    get(futures[slot], &got);
    drop_future(futures[slot]);
    if (!got.there || got.failed)
        __builtin_trap();
    uint32_t code = status(got.response);
    drop_response(got.response);
    return code;
}

static void tell(text_t *seen, uint32_t number) {
    text_add_number(seen, number);
    text_add(seen, LITERAL(" "));
}

static void step(text_t *seen, string_t authority, char code, uint32_t n) {
    switch (code) {
    case 'P':
        begin_post(authority, n);
        return;
    case 'A':
        tell(seen, await_post(n));
        return;
    case 'a':
        answered = ask(n);
        tell(seen, answered);
        return;
    case 'i':
        registers[n] = own_index();
        return;
    case 'j':
        if (answered == 0)
            jump(registers[n]);
        return;
    case '(':
        registers[n] = begin_region();
        return;
    case ')':
        end_region(registers[n]);
        return;
    case 'm':
        set_mode(n);
        return;
    case 'x':
        leave(n);
        return;
    default:
        __builtin_trap();
    }
}

EXPORT(API "#run")
string_t *api_run(const char *authority, uint32_t length, const char *program, uint32_t steps) {
    static string_t answer;
    text_t seen = {0};
    for (uint32_t at = 0; at + 1 < steps; at += 2)
        step(&seen, (string_t){authority, length}, program[at], (uint32_t)program[at + 1] - '0');
    answer = text_done(&seen);
    return &answer;
}

EXPORT("cabi_post_" API "#run")
void api_run_done(string_t *done) {
    (void)done;
    arena_reset();
}
