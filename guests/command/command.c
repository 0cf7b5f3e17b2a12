/* A command, as of `wasi:cli/run`: prints how often it ran, its arguments and its environment, and
 * ends as its last argument says: `fail`, `exit`, `exit-failure`, `trap`, or else well. */
#include "cabi.h"

#define STREAMS "wasi:io/streams@0.2.0"
#define ENVIRONMENT "wasi:cli/environment@0.2.0"

enum { OK = 0, ERR = 1 };

typedef struct {
    uint8_t failed;
    struct {
        uint8_t error_case;
        uint32_t handle;
    } error;
} write_result_t;

typedef struct {
    string_t name;
    string_t value;
} variable_t;

typedef struct {
    variable_t *items;
    uint32_t length;
} variable_list_t;

IMPORT(ENVIRONMENT, "get-environment")
void get_environment(variable_list_t *variables);

IMPORT(ENVIRONMENT, "get-arguments")
void get_arguments(string_list_t *arguments);

IMPORT("wasi:cli/exit@0.2.0", "exit")
void cli_exit(uint32_t status);

IMPORT("wasi:cli/stdout@0.2.0", "get-stdout")
uint32_t get_stdout(void);

IMPORT("wasi:cli/stderr@0.2.0", "get-stderr")
uint32_t get_stderr(void);

IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void stream_write(uint32_t stream, const char *bytes, uint32_t length, write_result_t *result);

IMPORT(STREAMS, "[resource-drop]output-stream")
void stream_drop(uint32_t stream);

static uint32_t runs;

static void write_text(uint32_t stream, string_t text) {
    write_result_t result;
    stream_write(stream, text.bytes, text.length, &result);
    if (result.failed)
        __builtin_trap();
}

static bool same(string_t left, string_t right) {
    if (left.length != right.length)
        return false;
    for (uint32_t i = 0; i < left.length; i++)
        if (left.bytes[i] != right.bytes[i])
            return false;
    return true;
}

/* The executor tells every worker who it is; that is no part of what this guest shows. */
static bool is_own(string_t name) {
    return name.length >= 6 && same((string_t){name.bytes, 6}, LITERAL("GOLEM_"));
}

static void print_run(uint32_t out) {
    char digit = (char)('0' + ++runs % 10);
    write_text(out, LITERAL("run "));
    write_text(out, (string_t){&digit, 1});
    write_text(out, LITERAL("\n"));
}

static void print_surroundings(uint32_t out, string_list_t arguments) {
    for (uint32_t i = 0; i < arguments.length; i++) {
        write_text(out, LITERAL("argument "));
        write_text(out, arguments.items[i]);
        write_text(out, LITERAL("\n"));
    }
    variable_list_t variables;
    get_environment(&variables);
    for (uint32_t i = 0; i < variables.length; i++) {
        variable_t variable = variables.items[i];
        if (is_own(variable.name))
            continue;
        write_text(out, variable.name);
        write_text(out, LITERAL("="));
        write_text(out, variable.value);
        write_text(out, LITERAL("\n"));
    }
}

static uint32_t end(string_t wish) {
    if (same(wish, LITERAL("exit")))
        cli_exit(OK);
    if (same(wish, LITERAL("exit-failure")))
        cli_exit(ERR);
    if (same(wish, LITERAL("trap")))
        __builtin_trap();
    if (!same(wish, LITERAL("fail")))
        return OK;
    uint32_t err = get_stderr();
    write_text(err, LITERAL("failing, as asked\n"));
    stream_drop(err);
    return ERR;
}

EXPORT("wasi:cli/run@0.2.0#run")
uint32_t run(void) {
    string_list_t arguments;
    get_arguments(&arguments);
    uint32_t out = get_stdout();
    print_run(out);
    print_surroundings(out, arguments);
    stream_drop(out);
    string_t wish = LITERAL("");
    if (arguments.length > 0)
        wish = arguments.items[arguments.length - 1];
    uint32_t status = end(wish);
    arena_reset();
    return status;
}
