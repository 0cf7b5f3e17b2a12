/* Keeps things in a key-value store, and in a blob store. */
#include "text.h"

#define API "demo:keeper/api"
#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"
#define BLOBSTORE "wasi:blobstore/blobstore"
#define CONTAINER "wasi:blobstore/container"
#define TYPES "wasi:blobstore/types"
#define STREAMS "wasi:io/streams@0.2.0"
#define READ_MAX 65536u
#define EVERYTHING UINT64_MAX

enum { OTHER = 2 };

typedef struct {
    uint8_t which; /* of no-such-store, access-denied, other */
    string_t text;
} error_t;

typedef struct {
    uint8_t failed;
    union {
        uint32_t bucket;
        error_t error;
    };
} opened_t;

typedef struct {
    uint8_t failed;
    error_t error;
} done_t;

typedef struct {
    uint8_t is_some;
    string_t value;
} option_t;

typedef struct {
    uint8_t failed;
    union {
        option_t found;
        error_t error;
    };
} found_t;

typedef struct {
    uint8_t failed;
    union {
        int64_t number;
        error_t error;
    };
} counted_t;

/* Of blob stores: a resource or a sentence. */
typedef struct {
    uint8_t failed;
    union {
        uint32_t handle;
        string_t error;
    };
} made_t;

typedef struct {
    uint8_t failed;
    uint32_t stream;
} body_t;

typedef struct {
    uint8_t failed;
    union {
        string_t bytes;
        struct {
            uint8_t which;
            uint32_t handle;
        } error;
    };
} read_t;

/* What the exports answer. */
typedef struct {
    uint8_t failed;
    union {
        struct {
            uint64_t length;
            uint32_t sum;
        };
        string_t error;
    };
} sum_t;

typedef struct {
    uint8_t failed;
    union {
        int64_t number;
        string_t error;
    };
} count_t;

typedef struct {
    uint8_t failed;
    string_t error;
} put_t;

typedef struct {
    uint8_t failed;
    union {
        option_t found;
        string_t error;
    };
} look_t;

IMPORT(STORE, "open")
void open_bucket(const char *name, uint32_t length, opened_t *result);

IMPORT(STORE, "[method]bucket.get")
void bucket_get(uint32_t self, const char *key, uint32_t length, found_t *result);

IMPORT(STORE, "[method]bucket.set")
void bucket_set(uint32_t self, const char *key, uint32_t length, const char *value,
                uint32_t value_length, done_t *result);

IMPORT(STORE, "[resource-drop]bucket")
void drop_bucket(uint32_t self);

IMPORT(ATOMICS, "increment")
void increment(uint32_t bucket, const char *key, uint32_t length, int64_t delta,
               counted_t *result);

IMPORT(BLOBSTORE, "create-container")
void create_container(const char *name, uint32_t length, made_t *result);

IMPORT(CONTAINER, "[method]container.write-data")
void write_data(uint32_t self, const char *name, uint32_t length, uint32_t value, made_t *result);

IMPORT(CONTAINER, "[method]container.get-data")
void get_data(uint32_t self, const char *name, uint32_t length, uint64_t start, uint64_t end,
              made_t *result);

IMPORT(CONTAINER, "[method]container.clear")
void clear_container(uint32_t self, made_t *result);

IMPORT(CONTAINER, "[resource-drop]container")
void drop_container(uint32_t self);

IMPORT(TYPES, "[static]outgoing-value.new-outgoing-value")
uint32_t new_outgoing(void);

IMPORT(TYPES, "[method]outgoing-value.outgoing-value-write-body")
void write_body(uint32_t self, body_t *result);

IMPORT(TYPES, "[resource-drop]outgoing-value")
void drop_outgoing(uint32_t self);

IMPORT(TYPES, "[method]incoming-value.incoming-value-consume-async")
void consume(uint32_t self, made_t *result);

IMPORT(TYPES, "[resource-drop]incoming-value")
void drop_incoming(uint32_t self);

IMPORT(STREAMS, "[method]output-stream.write")
void stream_write(uint32_t self, const char *bytes, uint32_t length, read_t *result);

IMPORT(STREAMS, "[method]input-stream.blocking-read")
void stream_read(uint32_t self, uint64_t length, read_t *result);

IMPORT(STREAMS, "[resource-drop]output-stream")
void drop_output(uint32_t self);

IMPORT(STREAMS, "[resource-drop]input-stream")
void drop_input(uint32_t self);

static string_t sentence(error_t error) {
    return error.which == OTHER ? error.text : LITERAL("no access");
}

static uint32_t bucket_of(string_t name) {
    opened_t opened;
    open_bucket(name.bytes, name.length, &opened);
    if (opened.failed)
        __builtin_trap();
    return opened.bucket;
}

EXPORT(API "#count-up")
count_t *api_count_up(const char *key, uint32_t length, uint32_t times) {
    static count_t answer;
    uint32_t bucket = bucket_of(LITERAL("counts"));
    answer = (count_t){0};
    for (uint32_t turn = 0; turn < times && !answer.failed; turn++) {
        counted_t counted;
        increment(bucket, key, length, 1, &counted);
        answer = (count_t){.failed = counted.failed, .number = counted.number};
        if (counted.failed) {
            answer.error = sentence(counted.error);
            break;
        }
        text_t text = {0};
        text_add_number(&text, (uint64_t)counted.number);
        done_t done;
        bucket_set(bucket, "last", 4, text.bytes, text.length, &done);
        if (done.failed)
            answer = (count_t){.failed = true, .error = sentence(done.error)};
    }
    drop_bucket(bucket);
    return &answer;
}

EXPORT("cabi_post_" API "#count-up")
void api_count_up_done(count_t *answer) {
    (void)answer;
    arena_reset();
}

EXPORT(API "#put")
put_t *api_put(const char *name, uint32_t name_length, const char *key, uint32_t length,
               const char *value, uint32_t value_length) {
    static put_t answer;
    uint32_t bucket = bucket_of((string_t){name, name_length});
    done_t done;
    bucket_set(bucket, key, length, value, value_length, &done);
    answer = (put_t){.failed = done.failed};
    if (done.failed)
        answer.error = sentence(done.error);
    drop_bucket(bucket);
    return &answer;
}

EXPORT("cabi_post_" API "#put")
void api_put_done(put_t *answer) {
    (void)answer;
    arena_reset();
}

EXPORT(API "#look")
look_t *api_look(const char *name, uint32_t name_length, const char *key, uint32_t length) {
    static look_t answer;
    uint32_t bucket = bucket_of((string_t){name, name_length});
    found_t found;
    bucket_get(bucket, key, length, &found);
    answer = (look_t){.failed = found.failed, .found = found.found};
    if (found.failed)
        answer.error = sentence(found.error);
    drop_bucket(bucket);
    return &answer;
}

EXPORT("cabi_post_" API "#look")
void api_look_done(look_t *answer) {
    (void)answer;
    arena_reset();
}

static put_t *done(made_t made) {
    static put_t answer;
    answer = (put_t){.failed = made.failed};
    if (made.failed)
        answer.error = made.error;
    return &answer;
}

static uint32_t kept(void) {
    made_t made;
    create_container("kept", 4, &made);
    if (made.failed)
        __builtin_trap();
    return made.handle;
}

EXPORT(API "#store")
put_t *api_store(const char *name, uint32_t length, const char *piece, uint32_t piece_length,
                 uint32_t times) {
    uint32_t container = kept();
    uint32_t value = new_outgoing();
    body_t body;
    write_body(value, &body);
    if (body.failed)
        __builtin_trap();
    for (uint32_t turn = 0; turn < times; turn++) {
        read_t written;
        stream_write(body.stream, piece, piece_length, &written);
        if (written.failed)
            __builtin_trap();
    }
    drop_output(body.stream);
    made_t made;
    write_data(container, name, length, value, &made);
    drop_outgoing(value);
    drop_container(container);
    return done(made);
}

EXPORT("cabi_post_" API "#store")
void api_store_done(put_t *answer) {
    api_put_done(answer);
}

EXPORT(API "#sum")
sum_t *api_sum(const char *name, uint32_t length) {
    static sum_t answer;
    uint32_t container = kept();
    made_t value, stream;
    answer = (sum_t){0};
    get_data(container, name, length, 0, EVERYTHING, &value);
    if (value.failed) {
        answer = (sum_t){.failed = true, .error = value.error};
        return &answer;
    }
    consume(value.handle, &stream);
    if (stream.failed)
        __builtin_trap();
    uintptr_t mark = arena_end;
    read_t got;
    for (stream_read(stream.handle, READ_MAX, &got); !got.failed;
         stream_read(stream.handle, READ_MAX, &got)) {
        for (uint32_t at = 0; at < got.bytes.length; at++)
            answer.sum += (uint8_t)got.bytes.bytes[at];
        answer.length += got.bytes.length;
        arena_end = mark; /* what was read is not needed any more */
    }
    if (got.error.which == 0)
        answer = (sum_t){.failed = true, .error = LITERAL("the stream failed")};
    drop_input(stream.handle);
    drop_incoming(value.handle);
    drop_container(container);
    return &answer;
}

EXPORT("cabi_post_" API "#sum")
void api_sum_done(sum_t *answer) {
    (void)answer;
    arena_reset();
}

EXPORT(API "#clear")
put_t *api_clear(void) {
    uint32_t container = kept();
    made_t made;
    clear_container(container, &made);
    drop_container(container);
    return done(made);
}

EXPORT("cabi_post_" API "#clear")
void api_clear_done(put_t *answer) {
    api_put_done(answer);
}
