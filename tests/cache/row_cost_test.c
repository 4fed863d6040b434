/* Moving rows about copies references only, for every family that there is: what merge, filter, extract, clone and
 * publish take from the allocator does not grow with the rows, no page is made, and what the new caches store lies
 * where it lay. Families that copy (copies_rows) take exactly the storage of the rows that they make. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../bench/cache_feed.h"
#include "cache/harness.h"

enum { ROWS = 3, SHORT = 200, LONG = 3000, N_OPS = 5 };

static uint64_t n_taken; /* bytes that the allocator has given out so far */

static void *counting(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *fresh = NULL;
    (void)ctx;
    if (new_bytes > 0 && posix_memalign(&fresh, 64, new_bytes) != 0)
        return NULL;
    n_taken += new_bytes;
    if (fresh && ptr)
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(ptr);
    return fresh;
}

struct world {
    struct sennit_pool *pool;
    struct feed feed;
    struct sennit_cache *row[ROWS];
};

/* What one call took: from the allocator in all, and as storage. */
struct cost {
    uint64_t taken, stored;
};

static struct cost since(const struct world *w, struct cost before)
{
    return (struct cost){n_taken - before.taken, sennit_pool_bytes(w->pool) - before.stored};
}

static struct cost here(const struct world *w)
{
    return (struct cost){n_taken, sennit_pool_bytes(w->pool)};
}

/* Rows of n, n + 1 ... tokens. */
static void open_world(struct world *w, const char *family, uint64_t n)
{
    struct sennit_pool_options options = {.allocator = {counting, NULL}};
    OK(sennit_pool_create(&w->pool, &options, err));
    OK(feed_open(&w->feed, family, w->pool, 1, 64, err));
    for (uint32_t r = 0; r < ROWS; r++) {
        OK(sennit_cache_create(&w->row[r], w->pool, &w->feed.config, 1, err));
        OK(feed_row(&w->feed, w->row[r], 0, n + r, err));
    }
}

static void close_world(struct world *w)
{
    for (uint32_t r = 0; r < ROWS; r++)
        sennit_cache_dispose(&w->row[r]);
    feed_close(&w->feed);
    CHECK(sennit_pool_bytes(w->pool) == 0);
    sennit_pool_free(w->pool);
}

/* Both store one row in the same places, as far as the copy goes. */
static void same_places(const struct sennit_cache *a, uint32_t row, const struct sennit_cache *b, bool references)
{
    struct sennit_state x, y;
    size_t at = 0, n = 0;
    OK(sennit_cache_state(a, &x, err));
    OK(sennit_cache_state(b, &y, err));
    while (at < x.n_spans && x.spans[at].row != row)
        at++;
    for (; n < y.n_spans; n++, at++) {
        while (at < x.n_spans && x.spans[at].part != y.spans[n].part) /* what the copy has less of a part */
            at++;
        CHECK(at < x.n_spans && x.spans[at].row == row);
        CHECK((x.spans[at].data == y.spans[n].data) == references);
    }
    CHECK(n > 0 || sennit_cache_projected_bytes(a, 1) == 0);
    sennit_state_release(&x);
    sennit_state_release(&y);
}

/* A prefix that the family lets go out, as near to the half as it can. */
static uint64_t prefix_of(const struct sennit_cache *row)
{
    uint64_t n = sennit_cache_row_offset(row, 0), cut = n / 2 + 1,
             floor = sennit_cache_minimum_reusable_offset(row, 0);
    for (cut = cut > floor ? cut : floor; !sennit_cache_can_publish_row(row, 0, cut); cut++)
        CHECK(cut < n);
    return cut;
}

static void measure(struct world *w, struct cost cost[N_OPS])
{
    bool references = !w->feed.info.copies_rows;
    struct sennit_cache *batch, *extracted, *cloned, *published;
    const uint32_t keep[] = {2, 0};
    uint64_t n = sennit_cache_row_offset(w->row[0], 0);
    OK(sennit_cache_make_empty_batch(w->row[0], &batch, err));
    struct cost at = here(w);
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)w->row, ROWS, err));
    cost[0] = since(w, at), at = here(w);
    for (uint32_t r = 0; r < ROWS; r++)
        same_places(batch, r, w->row[r], references);
    at = here(w);
    OK(sennit_cache_filter_rows(batch, keep, 2, err));
    cost[1] = since(w, at), at = here(w);
    OK(sennit_cache_extract_row(batch, 1, &extracted, err));
    cost[2] = since(w, at), at = here(w);
    same_places(batch, 1, extracted, references);
    at = here(w);
    OK(sennit_cache_clone(w->row[0], 0, &cloned, err));
    cost[3] = since(w, at);
    same_places(w->row[0], 0, cloned, references);
    uint64_t prefix = prefix_of(w->row[0]);
    at = here(w);
    OK(sennit_cache_clone(w->row[0], 0, &published, err));
    if (prefix < n)
        OK(sennit_cache_trim(published, n - prefix, false, err));
    cost[4] = since(w, at);
    same_places(w->row[0], 0, published, references);
    sennit_cache_dispose(&published);
    sennit_cache_dispose(&cloned);
    sennit_cache_dispose(&extracted);
    sennit_cache_dispose(&batch);
}

static const char *const op_names[N_OPS] = {"merge", "filter", "extract", "clone", "publish"};
/* Objects and lists of rows of a cache and its parts. */
enum { OBJECTS = 12288, ONE_TABLE = 2048 };

static void check_references(const struct world *w, const struct cost *few, const struct cost *many)
{
    for (int i = 0; i < N_OPS; i++) {
        bool trims = i == N_OPS - 1; /* takes one table of pages, its own */
        if (many[i].taken != few[i].taken && !trims)
            die("%s %s: %llu bytes for short rows, %llu for long ones", w->feed.info.name, op_names[i],
                (unsigned long long)few[i].taken, (unsigned long long)many[i].taken);
        if (many[i].taken > OBJECTS || few[i].taken > OBJECTS)
            die("%s %s: %llu bytes are more than objects", w->feed.info.name, op_names[i],
                (unsigned long long)many[i].taken);
        if (many[i].stored > (trims ? ONE_TABLE : 0) || few[i].stored > (trims ? ONE_TABLE : 0))
            die("%s %s: %llu bytes of storage", w->feed.info.name, op_names[i], (unsigned long long)many[i].stored);
    }
    assert_int_equal(many[1].taken, 0); /* filter cannot run out of memory */
}

static void check_copies(const struct world *w, const struct cost *cost)
{
    uint64_t row[ROWS], all = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        row[r] = sennit_cache_projected_bytes(w->row[0], sennit_cache_row_offset(w->row[r], 0));
        all += row[r];
    }
    assert_int_equal(cost[0].stored, all);
    assert_int_equal(cost[1].stored, (uint64_t)0 - row[1]);
    assert_int_equal(cost[2].stored, row[0]);
    assert_int_equal(cost[3].stored, row[0]);
    assert_int_equal(cost[4].stored, sennit_cache_projected_bytes(w->row[0], prefix_of(w->row[0])));
}

static void rows_move_by_reference(void **state)
{
    (void)state;
    for (const char *const *name = sennit_cache_families(); *name; name++) {
        struct cost few[N_OPS], many[N_OPS];
        struct world w;
        open_world(&w, *name, SHORT);
        measure(&w, few);
        if (w.feed.info.copies_rows)
            check_copies(&w, few);
        close_world(&w);
        open_world(&w, *name, LONG);
        measure(&w, many);
        printf("%-10s", *name);
        for (int i = 0; i < N_OPS; i++)
            printf("  %s %llu", op_names[i], (unsigned long long)many[i].taken);
        printf("\n");
        if (w.feed.info.copies_rows)
            check_copies(&w, many);
        else
            check_references(&w, few, many);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_move_by_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
