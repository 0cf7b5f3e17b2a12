/* Durable functions of the guest's own: what a client library does with golem:durability. */
#include "http.h"
#include "text.h"

#define API "demo:callback/api"
#define DURABILITY "golem:durability/durability@1.2.0"
#define LAZY "lazy-initialized-pollable"

enum { PERSIST_NOTHING = 0, SMART = 2, READINGS_MAX = 16, READ_BYTES = 100 };

/* write-remote, of durable-function-type, as it is passed: an option<u64> belongs to another. */
#define WRITE_REMOTE 3, 0, 0

typedef struct {
    uint8_t live;
    uint8_t level;
} state_t;

typedef struct {
    struct {
        uint64_t seconds;
        uint32_t nanoseconds;
    } at;
    string_t function;
    string_t response;
    uint64_t rest[4];
} persisted_t;

IMPORT("golem:api/host@1.1.6", "set-oplog-persistence-level")
void set_level(uint32_t level);

IMPORT(DURABILITY, "begin-durable-function")
uint64_t begin_durable(uint32_t type, uint32_t some, uint64_t index);

IMPORT(DURABILITY, "end-durable-function")
void end_durable(uint32_t type, uint32_t some, uint64_t index, uint64_t begin, uint32_t forced);

IMPORT(DURABILITY, "current-durable-execution-state")
void current_state(state_t *result);

IMPORT(DURABILITY, "persist-durable-function-invocation")
void persist(const char *name, uint32_t name_length, const char *request, uint32_t request_length,
             const char *response, uint32_t response_length, uint32_t type, uint32_t some,
             uint64_t index);

IMPORT(DURABILITY, "read-persisted-durable-function-invocation")
void read_persisted(persisted_t *result);

IMPORT(DURABILITY, "[constructor]" LAZY)
uint32_t new_lazy(void);

IMPORT(DURABILITY, "[method]" LAZY ".set")
void set_lazy(uint32_t self, uint32_t pollable);

IMPORT(DURABILITY, "[method]" LAZY ".subscribe")
uint32_t subscribe_lazy(uint32_t self);

IMPORT("wasi:io/poll@0.2.0", "[method]pollable.block")
void block(uint32_t self);

IMPORT("wasi:io/streams@0.2.0", "[method]input-stream.read")
void read_now(uint32_t self, uint64_t count, read_t *result);

IMPORT("wasi:io/streams@0.2.0", "[method]input-stream.subscribe")
uint32_t subscribe_stream(uint32_t self);

IMPORT("[export]" API, "[resource-new]reading")
uint32_t new_reading(uint32_t representation);

typedef string_t run_t(void *taker, string_t url);

/* What a block of this guest comes to: where it is not live, what it came to before. */
static string_t durable(string_t name, run_t *run, void *taker, string_t url) {
    uint64_t begin = begin_durable(WRITE_REMOTE);
    string_t response;
    state_t state;
    current_state(&state);
    if (state.live) {
        set_level(PERSIST_NOTHING);
        response = run(taker, url);
        set_level(SMART);
        persist(name.bytes, name.length, url.bytes, url.length, response.bytes, response.length,
                WRITE_REMOTE);
    } else {
        persisted_t persisted;
        read_persisted(&persisted);
        response = persisted.response;
    }
    end_durable(WRITE_REMOTE, begin, 0);
    return response;
}

typedef struct {
    uint32_t response;
    uint32_t body;
    uint32_t stream; /* 0 while there is no response */
} opened_t;

/* The response to a GET; a failure of any kind is a trap. */
static opened_t opened(string_t url) {
    uint32_t future = future_of(request_to(url)), pollable = subscribe(future);
    block(pollable);
    drop_pollable(pollable);
    got_t got;
    get(future, &got);
    drop_future(future);
    if (!got.there || got.failed)
        __builtin_trap();
    made_t body, stream;
    consume(got.response, &body);
    body_stream(body.handle, &stream);
    return (opened_t){got.response, body.handle, stream.handle};
}

static string_t ask_whole(void *unused, string_t url) {
    (void)unused;
    opened_t of = opened(url);
    text_t text = {0};
    read_t read;
    for (;;) {
        blocking_read(of.stream, READ_BYTES, &read);
        if (read.failed)
            break;
        text_add(&text, (string_t){(const char *)read.bytes, read.length});
    }
    if (!read.closed)
        __builtin_trap();
    drop_stream(of.stream);
    drop_body(of.body);
    drop_response(of.response);
    return text_done(&text);
}

static string_t result;

EXPORT(API "#ask")
string_t *api_ask(const char *url, uint32_t length) {
    result = durable(LITERAL("demo:callback/ask"), ask_whole, NULL, (string_t){url, length});
    return &result;
}

EXPORT("cabi_post_" API "#ask")
void api_ask_post(string_t *unused) {
    (void)unused;
    arena_reset();
}

typedef struct {
    uint32_t lazy;
    uint32_t pollable;
    opened_t of;
} reading_t;

static reading_t readings[READINGS_MAX];
static uint32_t readings_count;

EXPORT(API "#[constructor]reading")
uint32_t api_reading(void) {
    if (readings_count == READINGS_MAX)
        __builtin_trap();
    uint32_t lazy = new_lazy();
    readings[readings_count] = (reading_t){lazy, subscribe_lazy(lazy), {0, 0, 0}};
    return new_reading(readings_count++);
}

static string_t read_next(void *taker, string_t url) {
    reading_t *reading = taker;
    if (reading->of.stream == 0) {
        reading->of = opened(url);
        set_lazy(reading->lazy, subscribe_stream(reading->of.stream));
    }
    block(reading->pollable);
    read_t read;
    read_now(reading->of.stream, READ_BYTES, &read);
    if (read.failed)
        __builtin_trap();
    return (string_t){(const char *)read.bytes, read.length};
}

EXPORT(API "#[method]reading.next")
string_t *api_reading_next(uint32_t self, const char *url, uint32_t length) {
    string_t name = LITERAL("demo:callback/reading.next");
    result = durable(name, read_next, &readings[self], (string_t){url, length});
    return &result;
}

EXPORT("cabi_post_" API "#[method]reading.next")
void api_reading_next_post(string_t *unused) {
    (void)unused;
    arena_reset();
}
