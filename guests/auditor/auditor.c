/* Oplogs through golem:api/oplog, which are counted and searched, and otherwise not looked at. */
#include "cabi.h"

#define API "demo:auditor/api"
#define OPLOG "golem:api/oplog@1.1.6"
#define FOUND_BYTES 144u /* of a tuple<oplog-index, oplog-entry>, by the canonical ABI */
#define FOUND_MAX 256u

typedef struct {
    uint8_t some;
    const uint8_t *items;
    uint32_t length;
} page_t;

typedef struct {
    uint64_t *items;
    uint32_t length;
} indices_t;

IMPORT(OPLOG, "[constructor]get-oplog")
uint32_t get_oplog(uint64_t high, uint64_t low, const char *name, uint32_t length, uint64_t start);

IMPORT(OPLOG, "[method]get-oplog.get-next")
void get_next(uint32_t self, page_t *page);

IMPORT(OPLOG, "[resource-drop]get-oplog")
void drop_get_oplog(uint32_t self);

IMPORT(OPLOG, "[constructor]search-oplog")
uint32_t search_oplog(uint64_t high, uint64_t low, const char *name, uint32_t length,
                      const char *text, uint32_t text_length);

IMPORT(OPLOG, "[method]search-oplog.get-next")
void search_next(uint32_t self, page_t *page);

IMPORT(OPLOG, "[resource-drop]search-oplog")
void drop_search_oplog(uint32_t self);

EXPORT(API "#entries")
uint32_t api_entries(uint64_t high, uint64_t low, const char *name, uint32_t length) {
    uint32_t oplog = get_oplog(high, low, name, length, 0);
    uint32_t count = 0;
    page_t page;
    for (get_next(oplog, &page); page.some; get_next(oplog, &page))
        count += page.length;
    drop_get_oplog(oplog);
    arena_reset();
    return count;
}

EXPORT(API "#search")
indices_t *api_search(uint64_t high, uint64_t low, const char *name, uint32_t length,
                      const char *text, uint32_t text_length) {
    static uint64_t found[FOUND_MAX];
    static indices_t indices;
    indices = (indices_t){found, 0};
    uint32_t search = search_oplog(high, low, name, length, text, text_length);
    page_t page;
    for (search_next(search, &page); page.some; search_next(search, &page)) {
        for (uint32_t i = 0; i < page.length && indices.length < FOUND_MAX; i++)
            copy_bytes(&found[indices.length++], page.items + i * FOUND_BYTES, sizeof found[0]);
    }
    drop_search_oplog(search);
    return &indices;
}

EXPORT("cabi_post_" API "#search")
void api_search_done(indices_t *indices) {
    (void)indices;
    arena_reset();
}
