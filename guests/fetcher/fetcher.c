/* HTTP requests without a library: futures, and a bare loop over wasi:io/poll. */
#include "http.h"
#include "text.h"

#define API "demo:fetcher/api"

enum { FUTURES_MAX = 256, READ_BYTES = 65536, WRITE_BYTES = 65536 };

typedef struct {
    _Alignas(8) uint8_t failed;
    _Alignas(8) uint64_t count; /* or a stream-error, which nobody looks at */
} room_t;

typedef struct {
    _Alignas(4) uint8_t failed;
    uint32_t error[2];
} written_t;

IMPORT(TYPES, REQUEST "body")
void request_body(uint32_t self, made_t *result);

IMPORT(TYPES, "[method]outgoing-body.write")
void body_output(uint32_t self, made_t *result);

IMPORT(TYPES, "[static]outgoing-body.finish")
void finish(uint32_t body, uint32_t some, uint32_t trailers, handled_t *result);

IMPORT("wasi:io/streams@0.2.0", "[method]output-stream.subscribe")
uint32_t subscribe_output(uint32_t self);

IMPORT("wasi:io/streams@0.2.0", "[method]output-stream.check-write")
void check_write(uint32_t self, room_t *result);

IMPORT("wasi:io/streams@0.2.0", "[method]output-stream.write")
void write_bytes(uint32_t self, const void *bytes, uint32_t length, written_t *result);

IMPORT("wasi:io/streams@0.2.0", "[resource-drop]output-stream")
void drop_output(uint32_t self);

static uint32_t ask(string_t url) {
    uint32_t request = request_to(url);
    return request == 0 ? 0 : future_of(request);
}

static void wait_for(uint32_t pollable) {
    indices_t ready;
    poll(&pollable, 1, &ready);
}

typedef void take_t(void *taker, const unsigned char *bytes, uint32_t length);

/* Reads a body to its end, or to where it fails; whether it came whole. */
static bool read_all(uint32_t response, void *taker, take_t *take) {
    made_t body, stream;
    consume(response, &body);
    body_stream(body.handle, &stream);
    read_t read;
    for (;;) {
        blocking_read(stream.handle, READ_BYTES, &read);
        if (read.failed)
            break;
        take(taker, read.bytes, read.length);
    }
    if (!read.closed)
        drop_error(read.error);
    drop_stream(stream.handle);
    drop_body(body.handle);
    return read.closed;
}

static void add_to_text(void *text, const unsigned char *bytes, uint32_t length) {
    text_add(text, (string_t){(const char *)bytes, length});
}

/* Status and body of a response that is there; the future is dropped. */
static string_t answer_of(uint32_t future) {
    got_t got;
    get(future, &got);
    if (!got.there)
        __builtin_trap(); /* it was said to be ready */
    drop_future(future);
    if (got.failed)
        return LITERAL("error");
    text_t text = {0};
    text_add_number(&text, status(got.response));
    text_add(&text, LITERAL(" "));
    bool whole = read_all(got.response, &text, add_to_text);
    drop_response(got.response);
    return whole ? text_done(&text) : LITERAL("error");
}

static string_list_t answers;

EXPORT(API "#fetch-all")
string_list_t *api_fetch_all(const string_t *urls, uint32_t count) {
    static uint32_t futures[FUTURES_MAX], places[FUTURES_MAX], pollables[FUTURES_MAX];
    if (count > FUTURES_MAX)
        __builtin_trap();
    string_t *items = arena_take(4, count * sizeof *items);
    uint32_t waiting = 0;
    for (uint32_t place = 0; place < count; place++) {
        uint32_t future = ask(urls[place]);
        items[place] = LITERAL("error");
        if (future != 0) {
            futures[waiting] = future;
            places[waiting] = place;
            pollables[waiting++] = subscribe(future);
        }
    }
    while (waiting > 0) {
        indices_t ready;
        poll(pollables, waiting, &ready);
        for (uint32_t i = ready.length; i-- > 0;) { /* from the end: the last one moves up */
            uint32_t index = ready.items[i];
            drop_pollable(pollables[index]);
            items[places[index]] = answer_of(futures[index]);
            waiting--;
            futures[index] = futures[waiting];
            places[index] = places[waiting];
            pollables[index] = pollables[waiting];
        }
    }
    answers = (string_list_t){items, count};
    return &answers;
}

EXPORT("cabi_post_" API "#fetch-all")
void api_fetch_all_post(string_list_t *unused) {
    (void)unused;
    arena_reset();
}

typedef struct {
    uint64_t count;
    uint64_t checksum;
} drained_t;

/* FNV-1a, and the arena is as empty as before: a body of any size takes no memory. */
static void count_bytes(void *taker, const unsigned char *bytes, uint32_t length) {
    drained_t *drained = taker;
    for (uint32_t i = 0; i < length; i++)
        drained->checksum = (drained->checksum ^ bytes[i]) * 0x100000001b3u;
    drained->count += length;
    arena_reset();
}

EXPORT(API "#drain")
drained_t *api_drain(const char *url, uint32_t length) {
    static drained_t drained;
    drained = (drained_t){0, 0xcbf29ce484222325u};
    uint32_t future = ask((string_t){url, length});
    uint32_t pollable = subscribe(future);
    wait_for(pollable);
    drop_pollable(pollable);
    got_t got;
    get(future, &got);
    drop_future(future);
    if (got.failed || !read_all(got.response, &drained, count_bytes))
        __builtin_trap();
    drop_response(got.response);
    return &drained;
}

EXPORT("cabi_post_" API "#drain")
void api_drain_post(drained_t *unused) {
    (void)unused;
    arena_reset();
}

/* Writes `count` bytes, as many at a time as fit; what fails is met again in the answer. */
static void pour_into(uint32_t stream, uint64_t count) {
    static uint64_t words[WRITE_BYTES / 8];
    uint32_t pollable = subscribe_output(stream);
    for (uint64_t done = 0; done < count;) {
        wait_for(pollable);
        room_t room;
        check_write(stream, &room);
        if (room.failed)
            break;
        uint64_t length = room.count & ~(uint64_t)7;
        if (length > WRITE_BYTES)
            length = WRITE_BYTES;
        if (length > count - done)
            length = count - done;
        for (uint32_t i = 0; i < WRITE_BYTES / 8; i++)
            words[i] = done / 8 + i;
        written_t written;
        write_bytes(stream, words, (uint32_t)length, &written);
        if (written.failed)
            break;
        done += length;
        arena_reset();
    }
    drop_pollable(pollable);
}

EXPORT(API "#pour")
string_t *api_pour(const char *url, uint32_t length, uint64_t count) {
    static string_t answer;
    answer = LITERAL("error");
    uint32_t request = request_to((string_t){url, length});
    if (request == 0)
        return &answer;
    made_t body, stream;
    if (set_method(request, POST, NULL, 0))
        __builtin_trap();
    request_body(request, &body);
    body_output(body.handle, &stream);
    uint32_t future = future_of(request);
    pour_into(stream.handle, future == 0 ? 0 : count);
    drop_output(stream.handle);
    handled_t finished;
    finish(body.handle, !SOME, 0, &finished);
    if (future == 0)
        return &answer;
    uint32_t pollable = subscribe(future);
    wait_for(pollable);
    drop_pollable(pollable);
    answer = answer_of(future);
    return &answer;
}

EXPORT("cabi_post_" API "#pour")
void api_pour_post(string_t *unused) {
    (void)unused;
    arena_reset();
}
