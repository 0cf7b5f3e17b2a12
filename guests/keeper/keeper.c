/* Keeps things in a key-value store. */
#include "text.h"

#define API "demo:keeper/api"
#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"

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

/* What the exports answer. */
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
