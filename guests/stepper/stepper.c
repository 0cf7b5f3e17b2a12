/* Does what a program of three-byte operations says, in terms of the rules of durability. Its
 * counter, registers and file outlive an invocation; everything it sees goes into one number. The
 * operations are those of tests/conformance/model/program.py. */
#include "cabi.h"

#define OUTSIDE "demo:stepper/outside"
#define HOST "golem:api/host@1.1.6"
#define DURABILITY "golem:durability/durability@1.2.0"
#define STREAMS "wasi:io/streams@0.2.0"
#define FILES "wasi:filesystem/types@0.2.0"

typedef struct {
    uint64_t high, low;
} uuid_t;

typedef struct {
    uint32_t attempts;
    uint64_t min_delay, max_delay;
    double multiplier;
    uint8_t has_jitter;
    double jitter;
} policy_t;

typedef struct {
    uint8_t failed, error_case;
    uint32_t error_handle;
} write_result_t;

typedef struct {
    uint32_t descriptor;
    string_t path;
} preopen_t;

typedef struct {
    preopen_t *items;
    uint32_t length;
} preopens_t;

typedef struct {
    uint8_t failed;
    uint32_t value; /* the descriptor, or the error code in its first byte */
} open_result_t;

typedef struct {
    uint8_t failed;
    uint8_t *bytes;
    uint32_t length;
    uint8_t at_end;
} read_result_t;

typedef struct {
    uint8_t failed;
    uint64_t value;
} size_result_t;

typedef struct {
    uint8_t known;
    uint64_t seconds;
    uint32_t nanoseconds;
} time_t_option;

typedef struct {
    uint8_t failed;
    struct {
        uint8_t type;
        uint64_t links, size;
        time_t_option read, written, changed;
    } stat;
} stat_result_t;

typedef struct {
    uint8_t failed;
    uint64_t value;
} answer_t;

IMPORT(OUTSIDE, "read-local") uint64_t read_local(uint32_t n);
IMPORT(OUTSIDE, "read-remote") uint64_t read_remote(uint32_t n);
IMPORT(OUTSIDE, "write-remote") uint64_t write_remote(uint32_t n);
IMPORT(OUTSIDE, "gate") uint64_t ask_gate(uint32_t n);
IMPORT(HOST, "get-oplog-index") uint64_t own_index(void);
IMPORT(HOST, "set-oplog-index") void jump(uint64_t index);
IMPORT(HOST, "oplog-commit") void commit(uint32_t replicas);
IMPORT(HOST, "mark-begin-operation") uint64_t begin_region(void);
IMPORT(HOST, "mark-end-operation") void end_region(uint64_t begin);
IMPORT(HOST, "get-retry-policy") void read_policy(policy_t *policy);
IMPORT(HOST, "set-retry-policy")
void set_policy(uint32_t attempts, uint64_t min_delay, uint64_t max_delay, double multiplier,
                uint32_t has_jitter, double jitter);
IMPORT(HOST, "get-oplog-persistence-level") uint32_t read_level(void);
IMPORT(HOST, "set-oplog-persistence-level") void set_level(uint32_t level);
IMPORT(HOST, "get-idempotence-mode") uint32_t read_mode(void);
IMPORT(HOST, "set-idempotence-mode") void set_mode(uint32_t on);
IMPORT(HOST, "generate-idempotency-key") void make_key(uuid_t *key);
IMPORT("wasi:cli/exit@0.2.0", "exit") void leave(uint32_t failed);
IMPORT("wasi:cli/stdout@0.2.0", "get-stdout") uint32_t get_stdout(void);
IMPORT("wasi:cli/stderr@0.2.0", "get-stderr") uint32_t get_stderr(void);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void stream_write(uint32_t stream, const char *bytes, uint32_t length, write_result_t *result);
IMPORT(STREAMS, "[resource-drop]output-stream") void stream_drop(uint32_t stream);
IMPORT("wasi:filesystem/preopens@0.2.0", "get-directories")
void get_directories(preopens_t *directories);
IMPORT(FILES, "[method]descriptor.open-at")
void open_at(uint32_t directory, uint32_t path_flags, const char *path, uint32_t path_length,
             uint32_t open_flags, uint32_t flags, open_result_t *result);
IMPORT(FILES, "[method]descriptor.read")
void file_read(uint32_t file, uint64_t length, uint64_t offset, read_result_t *result);
IMPORT(FILES, "[method]descriptor.write")
void file_write(uint32_t file, const uint8_t *bytes, uint32_t length, uint64_t offset,
                size_result_t *result);
IMPORT(FILES, "[method]descriptor.stat") void file_stat(uint32_t file, stat_result_t *result);

/* A wrapped-function-type, flat: write-remote-batched(none). */
#define BATCHED 4, 0, 0

typedef struct {
    uint8_t is_live, level;
} execution_state_t;

typedef struct {
    struct {
        uint64_t seconds;
        uint32_t nanoseconds;
    } at;
    string_t function;
    uint8_t *response;
    uint32_t response_length;
    struct {
        uint8_t type;
        struct {
            uint8_t is_some;
            uint64_t index;
        } begin;
    } function_type;
    uint8_t version;
} persisted_t;

IMPORT(DURABILITY, "begin-durable-function")
uint64_t begin_scope(uint32_t type, uint32_t has_index, uint64_t index);
IMPORT(DURABILITY, "end-durable-function")
void end_scope(uint32_t type, uint32_t has_index, uint64_t index, uint64_t begin, uint32_t forced);
IMPORT(DURABILITY, "current-durable-execution-state")
void read_state(execution_state_t *state);
IMPORT(DURABILITY, "persist-durable-function-invocation")
void persist(const char *name, uint32_t name_length, const uint8_t *request,
             uint32_t request_length, const uint8_t *response, uint32_t response_length,
             uint32_t type, uint32_t has_index, uint64_t index);
IMPORT(DURABILITY, "read-persisted-durable-function-invocation")
void read_persisted(persisted_t *persisted);

static uint64_t counter, value, registers[4];
static uint32_t file;

static void expect(bool holds) {
    if (!holds)
        __builtin_trap();
}

static void fold(uint64_t seen) {
    value = (value ^ seen) * 1099511628211u + 1;
}

static void open_file(void) {
    if (file != 0)
        return;
    preopens_t directories;
    get_directories(&directories);
    expect(directories.length == 1);
    open_result_t opened;
    open_at(directories.items[0].descriptor, 0, "f", 1, 1 /* create */, 3 /* read, write */,
            &opened);
    expect(!opened.failed);
    file = opened.value;
}

static void touch_file(uint8_t code, uint8_t a, uint8_t b) {
    open_file();
    if (code == 17) {
        size_result_t written;
        file_write(file, &b, 1, a, &written);
        expect(!written.failed && written.value == 1);
    } else if (code == 18) {
        read_result_t got;
        file_read(file, 4096, 0, &got);
        expect(!got.failed);
        for (uint32_t i = 0; i < got.length; i++)
            fold(got.bytes[i]);
        fold(got.length);
    } else {
        stat_result_t got;
        file_stat(file, &got);
        expect(!got.failed && got.stat.written.known);
        fold(got.stat.written.seconds * 1000000000u + got.stat.written.nanoseconds);
    }
}

static void write_line(uint8_t a, uint8_t b) {
    char line[] = "line ?\n";
    line[5] = (char)('0' + b % 10);
    uint32_t stream = a % 2 ? get_stderr() : get_stdout();
    write_result_t written;
    stream_write(stream, line, sizeof line - 1, &written);
    expect(!written.failed);
    stream_drop(stream);
}

/* What ends this run of the instance, if the gate that it asks is open. */
static void leave_if_open(uint8_t code, uint8_t a, uint8_t b) {
    if (code == 14 && b == 255)
        __builtin_trap();
    uint32_t openings = code == 6 || code == 14 ? b : 1;
    uint64_t open = ask_gate((uint32_t)code << 16 | (uint32_t)a << 8 | openings);
    fold(open);
    if (!open)
        return;
    int64_t target = (int64_t)registers[a % 4] + (b % 9 == 8 ? 1000 : -(b % 9));
    if (code == 6)
        jump(registers[a % 4]);
    else if (code == 7)
        jump(target < 0 ? 0 : (uint64_t)target);
    else if (code == 14)
        __builtin_trap();
    else
        leave(b % 2);
}

static void set_modes(uint8_t code, uint8_t a) {
    policy_t policy;
    if (code == 10) {
        set_mode(a % 2);
    } else if (code == 11) {
        set_level(a % 3);
    } else if (code == 12) {
        set_policy(a % 4 + 1, 1000000, 1000000, 1, 0, 0);
    } else {
        read_policy(&policy);
        fold(read_mode() | read_level() << 1 | (uint64_t)policy.attempts << 3);
    }
}

/* A durable function of the guest's own: its block is a write, and a trap if a gate says so. */
static void run_scope(uint8_t a, uint8_t b) {
    uint64_t begin = begin_scope(BATCHED), answer;
    execution_state_t state;
    read_state(&state);
    if (state.is_live) {
        answer = write_remote((uint32_t)a << 8 | b % 8);
        persist("block", 5, &a, 1, (const uint8_t *)&answer, sizeof answer, BATCHED);
        if (b / 8 % 2 && ask_gate(22u << 16 | (uint32_t)a << 8 | 1))
            __builtin_trap();
    } else {
        persisted_t persisted;
        read_persisted(&persisted);
        expect(persisted.response_length == sizeof answer);
        copy_bytes(&answer, persisted.response, sizeof answer);
    }
    end_scope(BATCHED, begin, 0);
    fold(answer);
}

static void step(uint8_t code, uint8_t a, uint8_t b) {
    uint32_t argument = (uint32_t)a << 8 | b;
    uuid_t key;
    switch (code) {
    case 0:
        counter += a;
        return;
    case 1:
        fold(read_local(argument));
        return;
    case 2:
        fold(read_remote(argument));
        return;
    case 3:
        fold(write_remote(argument));
        return;
    case 4:
        write_line(a, b);
        return;
    case 5:
        registers[a % 4] = own_index();
        return;
    case 8:
        registers[a % 4] = begin_region();
        return;
    case 9:
        end_region(registers[a % 4]);
        return;
    case 10:
    case 11:
    case 12:
    case 21:
        set_modes(code, a);
        return;
    case 13:
        make_key(&key);
        fold(key.high);
        fold(key.low);
        return;
    case 17:
    case 18:
    case 19:
        touch_file(code, a, b);
        return;
    case 20:
        commit(1);
        return;
    case 22:
        run_scope(a, b);
        return;
    default:
        leave_if_open(code, a, b);
    }
}

EXPORT("demo:stepper/api#run")
answer_t *api_run(const uint8_t *program, uint32_t length) {
    static answer_t answer;
    value = 14695981039346656037u;
    for (uint32_t at = 0; at + 2 < length; at += 3) {
        if (program[at] == 15) {
            answer = (answer_t){1, program[at + 1]};
            return &answer;
        }
        step(program[at], program[at + 1], program[at + 2]);
    }
    fold(counter);
    answer = (answer_t){0, value};
    return &answer;
}

EXPORT("cabi_post_demo:stepper/api#run")
void api_run_done(answer_t *done) {
    (void)done;
    arena_reset();
}
