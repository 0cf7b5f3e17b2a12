/* Files through wasi:filesystem, and waiting between writes through wasi:io/poll. */
#include "cabi.h"

#define API "demo:scribe/api"
#define TYPES "wasi:filesystem/types@0.2.0"
#define DESCRIPTOR "[method]descriptor."

enum { FOLLOW = 1, CREATE = 1, TRUNCATE = 8, READ = 1, WRITE = 2 };

typedef struct {
    uint8_t failed;
    uint8_t code;
} done_t;

typedef struct {
    uint8_t failed;
    union {
        uint8_t code;
        uint32_t handle;
    };
} opened_t;

typedef struct {
    uint8_t failed;
    union {
        uint8_t code;
        uint64_t count;
    };
} written_t;

typedef struct {
    uint32_t handle;
    string_t path;
} directory_t;

typedef struct {
    directory_t *items;
    uint32_t length;
} directories_t;

IMPORT("wasi:filesystem/preopens@0.2.0", "get-directories")
void get_directories(directories_t *result);

IMPORT(TYPES, DESCRIPTOR "open-at")
void open_at(uint32_t self, uint32_t path_flags, const char *path, uint32_t length,
             uint32_t open_flags, uint32_t flags, opened_t *result);

IMPORT(TYPES, DESCRIPTOR "write")
void write_at(uint32_t self, const char *bytes, uint32_t length, uint64_t offset,
              written_t *result);

IMPORT(TYPES, DESCRIPTOR "set-size")
void set_size(uint32_t self, uint64_t size, done_t *result);

IMPORT(TYPES, DESCRIPTOR "create-directory-at")
void create_directory_at(uint32_t self, const char *path, uint32_t length, done_t *result);

IMPORT(TYPES, DESCRIPTOR "symlink-at")
void symlink_at(uint32_t self, const char *target, uint32_t target_length, const char *path,
                uint32_t length, done_t *result);

IMPORT(TYPES, DESCRIPTOR "unlink-file-at")
void unlink_file_at(uint32_t self, const char *path, uint32_t length, done_t *result);

IMPORT(TYPES, "[resource-drop]descriptor")
void drop_descriptor(uint32_t self);

IMPORT("wasi:clocks/monotonic-clock@0.2.0", "subscribe-duration")
uint32_t subscribe_duration(uint64_t ns);

IMPORT("wasi:io/poll@0.2.0", "[method]pollable.block")
void block(uint32_t self);

IMPORT("wasi:io/poll@0.2.0", "[resource-drop]pollable")
void drop_pollable(uint32_t self);

static uint32_t preopened;
static done_t answer;

static uint32_t root(void) {
    if (preopened == 0) {
        directories_t directories;
        get_directories(&directories);
        preopened = directories.items[0].handle;
    }
    return preopened;
}

static done_t *end(void) {
    arena_reset();
    return &answer;
}

/* A descriptor for writing, or false with the code in `answer`. */
static bool open_file(const char *path, uint32_t length, uint32_t open_flags, uint32_t *file) {
    opened_t opened;
    open_at(root(), FOLLOW, path, length, open_flags, READ | WRITE, &opened);
    answer = (done_t){opened.failed, opened.code};
    *file = opened.handle;
    return !opened.failed;
}

static bool write_text(uint32_t file, const char *text, uint32_t length, uint64_t offset) {
    written_t written;
    write_at(file, text, length, offset, &written);
    answer = (done_t){written.failed, written.code};
    return !written.failed;
}

EXPORT(API "#write")
done_t *api_write(const char *path, uint32_t path_length, const char *text, uint32_t length) {
    uint32_t file;
    if (open_file(path, path_length, CREATE | TRUNCATE, &file)) {
        write_text(file, text, length, 0);
        drop_descriptor(file);
    }
    return end();
}

EXPORT(API "#write-and-wait")
done_t *api_write_and_wait(const char *path, uint32_t path_length, const char *before,
                         uint32_t before_length, uint64_t pause, const char *after,
                         uint32_t after_length) {
    uint32_t file;
    if (!open_file(path, path_length, CREATE | TRUNCATE, &file))
        return end();
    if (write_text(file, before, before_length, 0)) {
        uint32_t timer = subscribe_duration(pause);
        write_text(file, after, after_length, before_length);
        block(timer);
        drop_pollable(timer);
    }
    drop_descriptor(file);
    return end();
}

EXPORT(API "#write-and-trap")
void api_write_and_trap(const char *path, uint32_t path_length, const char *text,
                        uint32_t length) {
    api_write(path, path_length, text, length);
    __builtin_trap();
}

EXPORT(API "#resize")
done_t *api_resize(const char *path, uint32_t path_length, uint64_t size) {
    uint32_t file;
    if (open_file(path, path_length, CREATE, &file)) {
        set_size(file, size, &answer);
        drop_descriptor(file);
    }
    return end();
}

EXPORT(API "#make-directory")
done_t *api_make_directory(const char *path, uint32_t length) {
    create_directory_at(root(), path, length, &answer);
    return end();
}

EXPORT(API "#link")
done_t *api_link(const char *target, uint32_t target_length, const char *path, uint32_t length) {
    symlink_at(root(), target, target_length, path, length, &answer);
    return end();
}

EXPORT(API "#remove")
done_t *api_remove(const char *path, uint32_t length) {
    unlink_file_at(root(), path, length, &answer);
    return end();
}
