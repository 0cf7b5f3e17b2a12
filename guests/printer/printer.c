/* Lines to standard output and standard error, through wasi:io/streams. */
#include "cabi.h"

#define API "demo:printer/api"
#define STREAMS "wasi:io/streams@0.2.0"
#define WRITE_MAX 4096u /* of one blocking-write-and-flush, by its specification */

typedef struct {
    uint8_t failed;
    struct {
        uint8_t error_case;
        uint32_t handle;
    } error;
} write_result_t;

IMPORT("wasi:cli/stdout@0.2.0", "get-stdout")
uint32_t get_stdout(void);

IMPORT("wasi:cli/stderr@0.2.0", "get-stderr")
uint32_t get_stderr(void);

IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void stream_write(uint32_t stream, const char *bytes, uint32_t length, write_result_t *result);

IMPORT(STREAMS, "[resource-drop]output-stream")
void stream_drop(uint32_t stream);

static uint32_t lines;

static void write_all(uint32_t stream, const char *bytes, uint32_t length) {
    while (length > 0) {
        uint32_t piece = length < WRITE_MAX ? length : WRITE_MAX;
        write_result_t result;
        stream_write(stream, bytes, piece, &result);
        if (result.failed)
            __builtin_trap();
        bytes += piece;
        length -= piece;
    }
}

static uint32_t write_line(uint32_t stream, const char *bytes, uint32_t length) {
    write_all(stream, bytes, length);
    write_all(stream, "\n", 1);
    stream_drop(stream);
    arena_reset();
    return ++lines;
}

EXPORT(API "#print")
uint32_t api_print(const char *line, uint32_t length) {
    return write_line(get_stdout(), line, length);
}

EXPORT(API "#warn")
uint32_t api_warn(const char *line, uint32_t length) {
    return write_line(get_stderr(), line, length);
}

EXPORT(API "#write")
void api_write(const char *bytes, uint32_t length) {
    uint32_t stream = get_stdout();
    write_all(stream, bytes, length);
    stream_drop(stream);
    arena_reset();
}
