/* What a change of precision costs and what it leaves alone: bytes in force, the most on the way, shared pages,
 * snapshots, memory that fails. */
#include "cache/delayed_common.h"

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* A cache that is of one form for ever. */
static struct sennit_cache *one_form(struct fixture *f, bool code)
{
    struct sennit_cache_config config = {.family = code ? "affine" : "plain",
                                         .n_kv_heads = H,
                                         .d_k = DK,
                                         .d_v = DV,
                                         .k_type = code ? 0 : SENNIT_F16,
                                         .v_type = code ? 0 : SENNIT_F16,
                                         .max_span = MOST,
                                         .round_depth = 8};
    struct sennit_cache *c;
    if (code)
        config.code = codes.code;
    put_in_window(&config);
    OK(sennit_cache_create(&c, f->pool, &config, 1, err));
    return c;
}

/* Rule 11 of what others learned: a flag that is accepted is applied, and the bytes show it. */
static void bytes_show_the_form(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 70, 64);
    struct sennit_cache *c = serial(&f, 1, 0), *form[2] = {one_form(&f, false), one_form(&f, true)};
    for (uint32_t n = 0; n < 200; n++) {
        const struct sennit_cache *now = form[n > 70], *next = form[n >= 70];
        uint64_t bytes = sennit_cache_projected_bytes(now, n) - sennit_cache_projected_bytes(now, 0);
        assert_int_equal(sennit_cache_current_bytes(c, 0), bytes);
        assert_int_equal(sennit_pool_bytes(f.pool), bytes);
        assert_int_equal(sennit_cache_bytes_per_token(c), sennit_cache_bytes_per_token(next));
        feed(&f, c, 0, 1 + n, 1, NULL);
    }
    assert_true(sennit_cache_bytes_per_token(form[1]) * 3 < sennit_cache_bytes_per_token(form[0]) * 2);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&form[0]);
    sennit_cache_dispose(&form[1]);
    close_fixture(&f);
}

/* The most bytes of cache storage since the last look. The other uses are warm: nothing of them grows. */
static uint64_t peak_since(struct fixture *f, uint64_t *other)
{
    struct sn_heap *heap = f->pool->heap;
    uint64_t rest = atomic_load(&heap->total) - atomic_load(&heap->used[SN_USE_CACHE]);
    uint64_t peak = atomic_load(&heap->peak) - *other;
    assert_true(rest == *other);
    atomic_store(&heap->peak, atomic_load(&heap->total));
    return peak;
}

static uint64_t watch(struct fixture *f)
{
    struct sn_heap *heap = f->pool->heap;
    atomic_store(&heap->peak, atomic_load(&heap->total));
    return atomic_load(&heap->total) - atomic_load(&heap->used[SN_USE_CACHE]);
}

/* Scratch, lists and undo entries for the steps of the tests below, a round of the whole depth among them. */
static void warm_up(struct fixture *f, struct sennit_cache *c)
{
    struct sennit_cache *copy;
    OK(sennit_cache_clone(c, 0, &copy, err));
    sennit_cache_dispose(&copy);
    feed(f, c, 0, 1, MOST, NULL);
    if (f->g.config.round_depth > 0) {
        OK(sennit_cache_spec_round_begin(c, err));
        feed_in(f, c, 0, 1, f->g.config.round_depth, MOST, NULL);
        OK(sennit_cache_spec_round_commit(c, err));
    }
    OK(sennit_cache_filter_rows(c, NULL, 0, err));
}

/* A fresh row in a cache that has had one. */
static void fresh_row(struct fixture *f, struct sennit_cache *c)
{
    struct sennit_cache *row = serial(f, 0, 0);
    const struct sennit_cache *sources[] = {row};
    OK(sennit_cache_filter_rows(c, NULL, 0, err));
    OK(sennit_cache_merge_rows(c, sources, 1, err));
    sennit_cache_dispose(&row);
}

/* A row that owns its pages needs one more, an encoded one, for its change, whatever its length; projected_bytes has
 * it, and is never below the allocator's count on the way, nor above it by more than that page. */
static void a_change_takes_one_page(void **state)
{
    (void)state;
    static const uint32_t page_sizes[] = {1, 4, 16, 64};
    for (size_t p = 0; p < SN_ARRAY_LEN(page_sizes); p++)
        for (uint64_t start = 1; start < 140; start += start < 5 ? 1 : 31) {
            struct fixture f;
            open_fixture(&f, start, page_sizes[p]);
            f.g.config.max_span = 1;
            f.g.config.round_depth = 0;
            struct sennit_cache *c = serial(&f, 1, 0), *like;
            warm_up(&f, c);
            fresh_row(&f, c);
            OK(sennit_cache_create(&like, f.pool, &f.g.config, 0, err));
            uint64_t other = watch(&f), page = sn_page_bytes(paging_of(c, true));
            assert_int_equal(sennit_cache_projected_bytes(like, 0), 0);
            for (uint32_t n = 0; n < 300; n++) {
                uint64_t before = sennit_pool_bytes(f.pool), bound = sennit_cache_projected_bytes(like, n + 1);
                feed(&f, c, 0, 1 + n, 1, NULL);
                uint64_t peak = peak_since(&f, &other);
                assert_true(peak <= bound && bound >= sennit_cache_projected_bytes(like, n));
                if (n == start)
                    assert_int_equal(peak, bound); /* exactly what was said */
                if (n == start && (windowed || sn_pages_of(paging_of(c, true), start) % SN_TABLE_PAGES != 0))
                    assert_int_equal(peak, before + page);
                if (n + 1 < start)
                    assert_int_equal(sennit_pool_bytes(f.pool), bound);
                assert_int_equal(sennit_pool_bytes(f.pool), stored(c, n >= start, n + 1));
            }
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&like);
            close_fixture(&f);
        }
}

/* With a longer span its pages serve the change first; a round's, and commit_prefill's, are within the projection. */
static void longer_spans_are_projected(void **state)
{
    (void)state;
    static const uint32_t spans[] = {1, 2, 7, 63, 64, 65, 200, MOST};
    for (int way = 0; way < 3; way++) /* an append, the first one of a round, commit_prefill before it */
        for (size_t s = 0; s < SN_ARRAY_LEN(spans); s++)
            for (uint64_t start = 60; start < 70; start++) {
                struct fixture f;
                open_fixture(&f, start, s % 2 ? 64 : 4);
                f.g.config.max_span = way == 1 ? 1 : spans[s];
                f.g.config.round_depth = way == 1 ? spans[s] : 0;
                struct sennit_cache *c = serial(&f, 1, 0), *like;
                warm_up(&f, c);
                fresh_row(&f, c);
                OK(sennit_cache_create(&like, f.pool, &f.g.config, 0, err));
                feed(&f, c, 0, 1, (uint32_t)start, NULL);
                uint64_t other = watch(&f), n = start;
                uint64_t page = sn_page_bytes(paging_of(c, true)), before = sennit_pool_bytes(f.pool);
                if (way == 2) {
                    uint32_t row = 0;
                    OK(sennit_cache_begin_prefill(c, err));
                    OK(sennit_cache_commit_prefill(c, &row, 1, err));
                    OK(sennit_cache_end_prefill(c, err));
                    assert_int_equal(peak_since(&f, &other), before + page);
                    assert_true(before + page <= sennit_cache_projected_bytes(like, n));
                }
                if (way == 1)
                    OK(sennit_cache_spec_round_begin(c, err));
                feed_in(&f, c, 0, 77, spans[s], MOST, NULL);
                if (way != 1)
                    n += spans[s];
                assert_true(peak_since(&f, &other) <= sennit_cache_projected_bytes(like, n));
                sennit_cache_dispose(&c);
                sennit_cache_dispose(&like);
                close_fixture(&f);
            }
}

/* A row whose pages others hold too takes its encoded size; they keep theirs. Snapshots of before are projected. */
static void shared_pages_are_left_alone(void **state)
{
    (void)state;
    for (uint64_t start = 3; start < 150; start += 21)
        for (uint32_t taken = 0; taken <= start; taken += 1 + (uint32_t)start / 3) {
            struct fixture f;
            open_fixture(&f, start, 16);
            f.g.config.n_snapshots = 1;
            struct sennit_cache *c = serial(&f, 1, 0), *copy;
            warm_up(&f, c);
            fresh_row(&f, c);
            struct sennit_cache *like = serial(&f, 0, 0);
            feed(&f, c, 0, 1, taken, NULL);
            OK(sennit_cache_clone(c, 0, &copy, err)); /* all of its pages, or a prefix of them */
            feed(&f, c, 0, 1 + taken, (uint32_t)start - taken, NULL);
            uint64_t other = watch(&f), before = sennit_pool_bytes(f.pool), mark = cache_fingerprint(copy);
            feed(&f, c, 0, 1 + start, 1, NULL);
            uint64_t peak = peak_since(&f, &other), size = stored(c, true, start + 1);
            assert_true(peak <= before + size + sn_page_bytes(paging_of(c, true)));
            assert_true(peak <= sennit_cache_projected_bytes(like, start + 1));
            assert_int_equal(sennit_cache_current_bytes(c, 0), size);
            assert_int_equal(sennit_pool_bytes(f.pool), size + stored(c, false, taken));
            if (taken > 0)
                assert_int_equal(sennit_cache_current_bytes(copy, 0), stored(c, false, taken));
            assert_true(cache_fingerprint(copy) == mark && !encoded(copy, 0));
            assert_continues(&f, copy, 0, 1, taken);
            assert_continues(&f, c, 0, 1, (uint32_t)start + 1);
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&copy);
            sennit_cache_dispose(&like);
            close_fixture(&f);
        }
}

/* What a view of the cache says, and then its row goes. */
static void answer(struct sennit_cache *c, const float q[HEADS * DK], float out[WIDTH])
{
    struct sennit_donor_attention *view;
    OK(sennit_cache_capture_donor_attention(c, &view, err));
    OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, out, err));
    sennit_donor_attention_free(view);
    OK(sennit_cache_filter_rows(c, NULL, 0, err));
}

/* Donors and planes taken before are plain, at start too, and stay what they were, to the bit, after the change and
 * the end of their source. */
static void donors_outlive_the_change(void **state)
{
    (void)state;
    for (uint32_t taken = 1; taken <= 21; taken += 4) {
        struct fixture f;
        open_fixture(&f, 21, 8);
        struct sennit_cache *c = serial(&f, 1, taken);
        struct sennit_donor *rows;
        struct sennit_donor_attention *view, *later;
        struct sennit_cache *plain = one_form(&f, false);
        float q[HEADS * DK], before[WIDTH], after[WIDTH];
        token_query(5, SN_ARRAY_LEN(q), q);
        OK(sennit_cache_capture_donor_rows(c, &rows, err));
        OK(sennit_cache_capture_donor_attention(c, &view, err));
        assert_string_equal(view->dtype, "F16");
        assert_true((windowed || rows->n_planes == 2 * sn_div_up(taken, 8)) && rows->planes[0].type == SENNIT_F16);
        OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, before, err));
        feed(&f, plain, 0, 1, taken, NULL);
        answer(plain, q, after);
        assert_memory_equal(before, after, sizeof before);
        sennit_cache_dispose(&plain);
        size_t n, m;
        uint8_t *x = canonical_spans(sn_donor_cache(rows), rows->planes, rows->n_planes, 0, taken, &n);
        feed(&f, c, 0, 1 + taken, 40, NULL);
        assert_true(encoded(c, 0));
        OK(sennit_cache_capture_donor_attention(c, &later, err));
        assert_string_equal(later->dtype, "affine k8 v4 g32");
        sennit_cache_dispose(&c);
        uint8_t *y = canonical_spans(sn_donor_cache(rows), rows->planes, rows->n_planes, 0, taken, &m);
        assert_true(n == m && memcmp(x, y, n) == 0);
        OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, after, err));
        assert_memory_equal(before, after, sizeof before);
        OK(sennit_donor_attend(later, q, HEADS, 1, 0.25f, NULL, after, err));
        assert_memory_not_equal(before, after, sizeof before);
        free(x);
        free(y);
        sennit_donor_free(rows);
        sennit_donor_attention_free(view);
        sennit_donor_attention_free(later);
        close_fixture(&f);
    }
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Four rows that are due at once: one that owns its pages, two that share theirs with each other, one that shares
 * some with a copy; and one that is not due. */
static struct sennit_cache *due_batch(struct fixture *f, struct sennit_cache **keep)
{
    struct sennit_cache *rows[5] = {serial(f, 1, 21), serial(f, 100, 21), NULL, serial(f, 300, 10),
                                    serial(f, 400, 30)};
    OK(sennit_cache_clone(rows[1], 0, &rows[2], err));
    OK(sennit_cache_clone(rows[3], 0, keep, err));
    feed(f, rows[3], 0, 310, 11, NULL);
    struct sennit_cache *batch = merged(rows, 5);
    for (int i = 0; i < 5; i++)
        sennit_cache_dispose(&rows[i]);
    return batch;
}

/* Every allocation of a change of several rows fails in turn, in a step and in commit_prefill: nothing has happened,
 * and the same call then does it. */
static void changes_are_whole_or_not(void **state)
{
    (void)state;
    static const uint32_t due[] = {0, 3, 1, 4, 2};
    for (int way = 0; way < 4; way++) {
        uint32_t n_failed = 0;
        for (bool fired = true; fired; n_failed++) {
            struct fixture f;
            open_fixture(&f, 21, 4);
            sn_cache_pool_set_hostile(f.pool, way >= 2);
            struct sennit_cache *copy, *batch = due_batch(&f, &copy);
            struct sennit_span spans[5];
            for (uint32_t i = 0; i < 5; i++)
                spans[i] = (struct sennit_span){.row = due[i],
                                                .pos = sennit_cache_row_offset(batch, due[i]),
                                                .n_tokens = 1 + 3 * i,
                                                .first_token = 20 * i};
            if (way % 2)
                OK(sennit_cache_begin_prefill(batch, err));
            uint64_t before = imprint(&f, batch), mark = cache_fingerprint(copy);
            fired = false;
            sn_heap_fail_at(f.pool->heap, n_failed + 1);
            for (int turn = 0; turn < 2; turn++) {
                struct sennit_error err = {0};
                sennit_status status = way % 2 ? sennit_cache_commit_prefill(batch, due, 5, &err)
                                               : sennit_cache_append_begin(batch, spans, 5, HEADS, &err);
                if (status == SENNIT_OK)
                    break;
                assert_true(status == SENNIT_NOMEM && turn == 0 && err.message[0] != '\0');
                assert_true(imprint(&f, batch) == before);
                fired = true;
            }
            sn_heap_fail_at(f.pool->heap, 0);
            if (way % 2)
                OK(sennit_cache_end_prefill(batch, err));
            else
                sennit_cache_append_abort(batch);
            assert_true(cache_fingerprint(copy) == mark);
            for (uint32_t r = 0; r < 5; r++)
                assert_true(encoded(batch, r));
            assert_int_equal(sennit_pool_bytes(f.pool),
                             4 * stored(batch, true, 21) + stored(batch, true, 30) + stored(batch, false, 10));
            static const uint64_t seeds[] = {1, 100, 100, 300, 400};
            for (uint32_t r = 0; r < 5; r++)
                assert_continues(&f, batch, r, seeds[r], r == 4 ? 30 : 21);
            sennit_cache_dispose(&batch);
            sennit_cache_dispose(&copy);
            close_fixture(&f);
        }
        assert_true(n_failed > 5);
    }
}

/* An allocator that cuts no block: a change that has begun ends all the same, and the books say what is held. */
static void *stubborn(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx, (void)old_bytes;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    return ptr ? NULL : must(aligned_alloc(64, sn_round_up(new_bytes, 64)));
}

static void blocks_that_cannot_be_cut(void **state)
{
    (void)state;
    struct sennit_allocator host = {stubborn, NULL};
    struct fixture f;
    open_fixture_on(&f, SENNIT_F16, 21, 8, &host);
    struct sennit_cache *c = serial(&f, 1, 21), *copy;
    uint64_t plain = sn_page_bytes(paging_of(c, false)), code = sn_page_bytes(paging_of(c, true));
    feed(&f, c, 0, 22, 1, NULL);
    /* Three plain pages became one new page and two of the old blocks; the last one went. */
    assert_int_equal(sennit_pool_bytes(f.pool),
                     (windowed ? stored(c, true, 22) - 3 * code : sn_table_bytes()) + code + 2 * plain);
    assert_int_equal(sennit_cache_current_bytes(c, 0), sennit_pool_bytes(f.pool));
    assert_continues(&f, c, 0, 1, 22);
    OK(sennit_cache_clone(c, 0, &copy, err));
    feed(&f, copy, 0, 23, 30, NULL);
    assert_continues(&f, copy, 0, 1, 52);
    OK(sennit_cache_trim(c, 1, false, err));
    assert_continues(&f, c, 0, 1, 21);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&copy);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_show_the_form),        cmocka_unit_test(a_change_takes_one_page),
        cmocka_unit_test(longer_spans_are_projected), cmocka_unit_test(shared_pages_are_left_alone),
        cmocka_unit_test(donors_outlive_the_change),  cmocka_unit_test(changes_are_whole_or_not),
        cmocka_unit_test(blocks_that_cannot_be_cut),
    };
    int failed = cmocka_run_group_tests_name("chains", tests, NULL, NULL);
    windowed = true;
    return failed + cmocka_run_group_tests_name("in a window", tests, NULL, NULL);
}
