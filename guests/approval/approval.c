/* Waits for what somebody else decides: the promises of golem:api/host. */
#include "text.h"

#define API "demo:approval/workflow"
#define HOST "golem:api/host@1.1.6"
#define STREAMS "wasi:io/streams@0.2.0"
#define NS_PER_S UINT64_C(1000000000)

/* A promise-id; as a parameter it is its five flat parts. */
typedef struct {
    uint64_t high, low;
    string_t worker;
    uint64_t index;
} promise_t;

#define PROMISE_PARAMETERS                                                                          \
    uint64_t high, uint64_t low, const char *worker, uint32_t worker_length, uint64_t index
#define PROMISE high, low, worker, worker_length, index

typedef struct {
    uint8_t is_some;
    string_t value;
} option_t;

typedef struct {
    string_t what, decision;
    uint32_t decided;
} decided_t;

typedef struct {
    uint8_t failed;
    struct {
        uint8_t error_case;
        uint32_t handle;
    } error;
} write_result_t;

IMPORT(HOST, "get-oplog-index")
uint64_t get_oplog_index(void);

IMPORT(HOST, "set-oplog-index")
void set_oplog_index(uint64_t index);

IMPORT(HOST, "create-promise")
void create_promise(promise_t *result);

IMPORT(HOST, "await-promise")
void await_promise(PROMISE_PARAMETERS, string_t *result);

IMPORT(HOST, "poll-promise")
void poll_promise(PROMISE_PARAMETERS, option_t *result);

IMPORT(HOST, "complete-promise")
bool complete_promise(PROMISE_PARAMETERS, const char *value, uint32_t length);

IMPORT(HOST, "delete-promise")
void delete_promise(PROMISE_PARAMETERS);

IMPORT("wasi:cli/stdout@0.2.0", "get-stdout")
uint32_t get_stdout(void);

IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void stream_write(uint32_t stream, const char *bytes, uint32_t length, write_result_t *result);

IMPORT(STREAMS, "[resource-drop]output-stream")
void stream_drop(uint32_t stream);

IMPORT("wasi:clocks/monotonic-clock@0.2.0", "subscribe-duration")
uint32_t subscribe_duration(uint64_t ns);

IMPORT("wasi:io/poll@0.2.0", "[method]pollable.block")
void block(uint32_t self);

IMPORT("wasi:io/poll@0.2.0", "[resource-drop]pollable")
void drop_pollable(uint32_t self);

static uint32_t decided;

static void say(string_t line) {
    write_result_t result;
    uint32_t stream = get_stdout();
    stream_write(stream, line.bytes, line.length, &result);
    stream_drop(stream);
}

EXPORT(API "#request")
decided_t *api_request(const char *what, uint32_t length) {
    static decided_t answer;
    promise_t promise;
    create_promise(&promise);
    text_t line = {0};
    text_add(&line, (string_t){what, length});
    text_add(&line, LITERAL(" waits for promise "));
    text_add_number(&line, promise.index);
    text_add(&line, LITERAL("\n"));
    say(text_done(&line));
    answer.what = (string_t){what, length};
    await_promise(promise.high, promise.low, promise.worker.bytes, promise.worker.length,
                  promise.index, &answer.decision);
    answer.decided = ++decided;
    return &answer;
}

EXPORT("cabi_post_" API "#request")
void api_request_done(decided_t *answer) {
    (void)answer;
    arena_reset();
}

EXPORT(API "#remind")
string_t *api_remind(const char *what, uint32_t length, uint32_t seconds) {
    static string_t answer;
    uint32_t timer = subscribe_duration(seconds * NS_PER_S);
    block(timer);
    drop_pollable(timer);
    text_t line = {0};
    text_add(&line, (string_t){what, length});
    text_add(&line, LITERAL("\n"));
    say(text_done(&line));
    answer = (string_t){what, length};
    return &answer;
}

EXPORT("cabi_post_" API "#remind")
void api_remind_done(string_t *answer) {
    (void)answer;
    arena_reset();
}

EXPORT(API "#create")
promise_t *api_create(void) {
    static promise_t promise;
    create_promise(&promise);
    return &promise;
}

EXPORT("cabi_post_" API "#create")
void api_create_done(promise_t *promise) {
    (void)promise;
    arena_reset();
}

EXPORT(API "#create-again")
promise_t *api_create_again(void) {
    uint64_t index = get_oplog_index();
    promise_t *promise = api_create();
    if (promise->index == index + 1) /* nothing lies between: there was no jump yet */
        set_oplog_index(index);
    return promise;
}

EXPORT("cabi_post_" API "#create-again")
void api_create_again_done(promise_t *promise) {
    api_create_done(promise);
}

EXPORT(API "#await")
string_t *api_await(PROMISE_PARAMETERS) {
    static string_t value;
    await_promise(PROMISE, &value);
    return &value;
}

EXPORT("cabi_post_" API "#await")
void api_await_done(string_t *value) {
    (void)value;
    arena_reset();
}

EXPORT(API "#poll")
option_t *api_poll(PROMISE_PARAMETERS) {
    static option_t value;
    poll_promise(PROMISE, &value);
    return &value;
}

EXPORT("cabi_post_" API "#poll")
void api_poll_done(option_t *value) {
    (void)value;
    arena_reset();
}

EXPORT(API "#complete")
bool api_complete(PROMISE_PARAMETERS, const char *value, uint32_t length) {
    bool done = complete_promise(PROMISE, value, length);
    arena_reset();
    return done;
}

EXPORT(API "#delete")
void api_delete(PROMISE_PARAMETERS) {
    delete_promise(PROMISE);
    arena_reset();
}
