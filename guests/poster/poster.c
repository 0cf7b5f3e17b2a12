/* Remote writes beside the guest, and what a guest may do while they are under way. The steps are
 * those of wit/poster.wit. */
#include "text.h"

#define API "demo:poster/api"
#define HOST "golem:api/host@1.1.6"
#define TYPES "wasi:http/types@0.2.0"
#define REQUEST "[method]outgoing-request."
#define FUTURE "[method]future-incoming-response."

enum { HTTP = 0, POST = 2, SOME = 1, SLOTS = 10 };

/* Of `handle`: an error-code holds a u64, so what follows the discriminant stands at 8. */
typedef struct {
    _Alignas(8) uint8_t failed;
    _Alignas(8) uint32_t future;
    uint8_t rest[28];
} handled_t;

/* option<result<result<incoming-response, error-code>>> */
typedef struct {
    _Alignas(8) uint8_t there;
    _Alignas(8) uint8_t taken;
    _Alignas(8) uint8_t failed;
    _Alignas(8) uint32_t response;
    uint8_t rest[28];
} got_t;

typedef struct {
    uint32_t *items;
    uint32_t length;
} indices_t;

IMPORT("demo:poster/peer", "ask") uint32_t ask(uint32_t n);
IMPORT(HOST, "get-oplog-index") uint64_t own_index(void);
IMPORT(HOST, "set-oplog-index") void jump(uint64_t index);
IMPORT(HOST, "mark-begin-operation") uint64_t begin_region(void);
IMPORT(HOST, "mark-end-operation") void end_region(uint64_t begin);
IMPORT(HOST, "set-idempotence-mode") void set_mode(uint32_t on);
IMPORT("wasi:cli/exit@0.2.0", "exit") void leave(uint32_t failed);
IMPORT(TYPES, "[constructor]fields") uint32_t new_fields(void);
IMPORT(TYPES, "[constructor]outgoing-request") uint32_t new_request(uint32_t fields);

IMPORT(TYPES, REQUEST "set-method")
uint32_t set_method(uint32_t self, uint32_t method, const char *, uint32_t);

IMPORT(TYPES, REQUEST "set-scheme")
uint32_t set_scheme(uint32_t self, uint32_t some, uint32_t scheme, const char *, uint32_t);

IMPORT(TYPES, REQUEST "set-authority")
uint32_t set_authority(uint32_t self, uint32_t some, const char *text, uint32_t length);

IMPORT(TYPES, REQUEST "set-path-with-query")
uint32_t set_path(uint32_t self, uint32_t some, const char *text, uint32_t length);

IMPORT("wasi:http/outgoing-handler@0.2.0", "handle")
void handle(uint32_t request, uint32_t some, uint32_t options, handled_t *result);

IMPORT(TYPES, FUTURE "subscribe") uint32_t subscribe(uint32_t self);
IMPORT(TYPES, FUTURE "get") void get(uint32_t self, got_t *result);
IMPORT(TYPES, "[resource-drop]future-incoming-response") void drop_future(uint32_t self);
IMPORT(TYPES, "[method]incoming-response.status") uint32_t status(uint32_t self);
IMPORT(TYPES, "[resource-drop]incoming-response") void drop_response(uint32_t self);

IMPORT("wasi:io/poll@0.2.0", "poll")
void poll(const uint32_t *pollables, uint32_t length, indices_t *result);

IMPORT("wasi:io/poll@0.2.0", "[resource-drop]pollable") void drop_pollable(uint32_t self);

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
    handled_t handled;
    handle(request, !SOME, 0, &handled);
    if (handled.failed)
        __builtin_trap();
    futures[slot] = handled.future;
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
