/* What batching engines learned the hard way: the 15 rules of docs/contract.md, one test each, every one for every
 * kind of cache. A test that means nothing for a kind skips itself. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/stage.h"

/* ---- 1: identity ----------------------------------------------------------------------------------------------- */

static void kinds_differ_by_signature(const struct stage *s, const struct sennit_cache *c)
{
    const char *mine = sennit_cache_signature(c);
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    assert_int_equal(strncmp(mine, family_of(s->tested), strlen(family_of(s->tested))), 0);
    for (size_t i = 0; i < n; i++) {
        struct stage other;
        stage_open_kind(&other, &kinds[i]);
        struct sennit_cache *b, *empty;
        OK(sennit_cache_create(&b, s->pool, &other.g.config, 1, err)); /* of this pool: the kind alone differs */
        bool same = strcmp(kinds[i].name, s->kind->name) == 0;
        assert_int_equal(strcmp(mine, sennit_cache_signature(b)) == 0, same);
        OK(sennit_cache_make_empty_batch(c, &empty, err));
        const struct sennit_cache *sources[] = {b};
        if (!same)
            REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 1, err));
        assert_int_equal(sennit_cache_batch_size(empty), 0);
        sennit_cache_dispose(&b);
        const struct sennit_cache *right[] = {c};
        OK(sennit_cache_merge_rows(empty, right, 1, err)); /* still there to be used */
        sennit_cache_dispose(&empty);
        stage_close(&other);
    }
}

/* A row joins batches of 1, 2, 3 and 8 running rows: the kind stays, and so does every row. */
static void joins_keep_the_kind(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 8};
    struct stage s;
    stage_open(&s);
    for (size_t k = 0; k < SN_ARRAY_LEN(sizes); k++) {
        struct sennit_cache *rows[8], *running, *joining = stage_row(&s, 9000, 5), *both;
        struct feed feeds[8];
        for (uint32_t i = 0; i < sizes[k]; i++) {
            rows[i] = stage_row(&s, 1000 * i, 3 + 9 * i);
            feeds[i] = (struct feed){.row = i, .seed = 1000 * i + 3 + 9 * i, .n = 1 + i % 3};
        }
        running = stage_merge(&s, rows, sizes[k]);
        stage_feeds(&s, running, feeds, sizes[k]);
        if (k == 0)
            kinds_differ_by_signature(&s, running);
        const struct sennit_cache *sources[] = {running, joining};
        OK(sennit_cache_make_empty_batch(running, &both, err));
        OK(sennit_cache_merge_rows(both, sources, 2, err));
        assert_int_equal(sennit_cache_batch_size(both), sizes[k] + 1);
        assert_string_equal(sennit_cache_signature(both), sennit_cache_signature(joining));
        stage_dispose(rows, sizes[k]);
        sennit_cache_dispose(&running);
        for (uint32_t i = 0; i < sizes[k]; i++)
            stage_same(&s, both, i, 1000 * i, 3 + 9 * i + 1 + i % 3);
        stage_same(&s, both, sizes[k], 9000, 5);
        stage_same(&s, joining, 0, 9000, 5); /* not consumed */
        sennit_cache_dispose(&joining);
        sennit_cache_dispose(&both);
    }
    stage_close(&s);
}

/* ---- 2: positions ---------------------------------------------------------------------------------------------- */

/* What was read before an append is what it was, during the step and after it; the append itself does not move what
 * can be read until it is complete. */
static void positions_are_read_once(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *rows[] = {stage_row(&s, 1, 5), stage_row(&s, 50, 9)}, *c = stage_merge(&s, rows, 2);
    int32_t read[2] = {-1, -1};
    assert_true(sennit_cache_rope_offset_arr(c, read));
    uint64_t offset = sennit_cache_row_offset(c, 0);
    struct sennit_span span = {.row = 0, .pos = offset, .n_tokens = 1};
    OK(begin_step(c, &s.g, &span, 1, err));
    int32_t again[2];
    assert_true(sennit_cache_rope_offset_arr(c, again));
    assert_memory_equal(read, again, sizeof read);
    assert_int_equal(sennit_cache_row_offset(c, 0), 5);
    sennit_cache_append_abort(c);
    assert_int_equal(sennit_cache_row_offset(c, 0), 5);
    stage_feed(&s, c, 0, 6, 4, NULL);
    assert_true(read[0] == 5 && read[1] == 9 && offset == 5);
    if (sennit_cache_rope_offset_arr(c, again)) /* both stand at 9 now: only a rectangle may say it row by row */
        assert_true(again[0] == 9 && again[1] == 9 && sennit_cache_offset(c) > 9);
    else
        assert_true(again[0] == 5 && again[1] == 9 && sennit_cache_offset(c) == 9); /* untouched */
    assert_true(read[0] == 5 && read[1] == 9);
    stage_same(&s, c, 0, 1, 9);
    stage_dispose(rows, 2);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- 3: padding ------------------------------------------------------------------------------------------------ */

/* Rows of 1 token to more than a page, with rest of dropped tokens behind some, take one token each in one step: each
 * answers as alone, whatever lies before and behind its own tokens. */
static void one_query_sees_no_padding(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s), n[] = {0, 1, edge - 1, edge, edge + 1, 2 * edge + 3};
    enum { ROWS = SN_ARRAY_LEN(n) };
    struct sennit_cache *rows[ROWS], *alone[ROWS];
    struct feed feeds[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i] = stage_row(&s, 1000 * i, n[i]);
        alone[i] = stage_row(&s, 1000 * i, n[i]);
        struct sennit_cache *stale;
        OK(sennit_cache_clone(rows[i], 0, &stale, err));
        stage_feed(&s, stale, 0, 77777, 3, NULL);
        if (sennit_cache_is_trimmable(stale) && sennit_cache_trim(stale, 3, false, NULL) == SENNIT_OK) {
            sennit_cache_dispose(&rows[i]);
            rows[i] = stale;
        } else {
            sennit_cache_dispose(&stale);
        }
        feeds[i] = (struct feed){.row = i, .seed = 1000 * i + n[i], .n = 1, .out = stage_out(&s, 1)};
    }
    struct sennit_cache *c = stage_merge(&s, rows, ROWS);
    float *want = stage_out(&s, 1);
    stage_feeds(&s, c, feeds, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        stage_feed(&s, alone[i], 0, 1000 * i + n[i], 1, want);
        assert_memory_equal(want, feeds[i].out, s.width * sizeof *want);
        for (size_t k = 0; k < s.width; k++)
            assert_true(want[k] == want[k]);
        free(feeds[i].out);
    }
    free(want);
    stage_dispose(rows, ROWS);
    stage_dispose(alone, ROWS);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- 4: copies ------------------------------------------------------------------------------------------------- */

/* Rows that were taken out keep nothing of the batch: after its end the bytes are back, but for the rows' own. */
static void extraction_pins_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    static const uint32_t n[] = {70, 150, 10, 33, 12};
    struct sennit_cache *rows[5], *one[5], *batch, *alone;
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = stage_row(&s, 1000 * i, n[i]);
    batch = stage_merge(&s, rows, 5);
    stage_dispose(rows, 5);
    for (uint32_t i = 0; i < 5; i++)
        OK(sennit_cache_extract_row(batch, i, &one[i], err));
    sennit_cache_dispose(&batch);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t with = sennit_pool_bytes(s.pool), own = sennit_cache_current_bytes(one[i], 0);
        stage_same(&s, one[i], 0, 1000 * i, n[i]);
        alone = stage_row(&s, 1000 * i, n[i]);
        assert_int_equal(own, sennit_pool_bytes(s.pool) - with); /* as much as the row alone */
        sennit_cache_dispose(&alone);
        sennit_cache_dispose(&one[i]);
        assert_int_equal(with - sennit_pool_bytes(s.pool), own);
    }
    assert_int_equal(sennit_pool_bytes(s.pool), 0);
    stage_close(&s);
}

/* ---- 5: rows that moved on ------------------------------------------------------------------------------------- */

/* The row keeps what one that met nobody keeps, and returns to where that one returns. */
static void keeps_as_alone(struct stage *s, const struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    struct sennit_cache *mine, *alone = stage_row(s, seed, n);
    OK(sennit_cache_extract_row(c, row, &mine, err));
    for (uint32_t k = 0; k < 2; k++) {
        bool can = k == 0 || sennit_cache_can_publish_row(alone, 0, n - k);
        assert_int_equal(k == 0 || sennit_cache_can_publish_row(mine, 0, n - k), can);
        if (k > 0 && can) {
            OK(sennit_cache_trim(mine, k, false, err)); /* shared with the batch */
            OK(sennit_cache_trim(alone, k, false, err));
        }
        assert_true(cache_fingerprint(mine) == cache_fingerprint(alone));
    }
    sennit_cache_dispose(&mine);
    sennit_cache_dispose(&alone);
}

static void merge_and_go_on(struct stage *s, uint32_t na, uint32_t nb, uint32_t steps)
{
    struct sennit_cache *rows[] = {stage_row(s, 1000, na), stage_row(s, 9000, nb)}, *c = stage_merge(s, rows, 2);
    float *out = stage_out(s, 2), *want = stage_out(s, 1);
    keeps_as_alone(s, c, 0, 1000, na);
    keeps_as_alone(s, c, 1, 9000, nb);
    for (uint32_t i = 0; i < steps; i++) {
        struct feed feeds[] = {{.row = 0, .seed = 1000 + na + i, .n = 1, .out = out},
                               {.row = 1, .seed = 9000 + nb + i, .n = 1, .out = out + s->width}};
        stage_feeds(s, c, feeds, 2);
        for (uint32_t r = 0; r < 2; r++) { /* the sources are the rows alone */
            stage_feed(s, rows[r], 0, feeds[r].seed, 1, want);
            if (memcmp(want, feeds[r].out, s->width * sizeof *want) != 0)
                die("%s: rows of %u and %u tokens, merged: row %u differs after %u steps", s->kind->name, na, nb, r,
                    i + 1);
        }
    }
    keeps_as_alone(s, c, 0, 1000, na + steps);
    keeps_as_alone(s, c, 1, 9000, nb + steps);
    free(out);
    free(want);
    stage_dispose(rows, 2);
    sennit_cache_dispose(&c);
}

/* Lengths {1, W - 1, W, W + 1, 2 W + 3} in both orders, W a window, a change of precision or a page; then 2 W
 * steps. */
static void rows_of_any_lengths_merge_and_go_on(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t w = stage_edge(&s), n[] = {1, w - 1, w, w + 1, 2 * w + 3};
    for (size_t i = 0; i < SN_ARRAY_LEN(n); i++)
        for (size_t j = 0; j < SN_ARRAY_LEN(n); j++)
            merge_and_go_on(&s, n[i], n[j], i == j ? 1 : 2 * w);
    stage_close(&s);
}

/* ---- 6: trims -------------------------------------------------------------------------------------------------- */

/* For every n fed and k dropped: refused, said so beforehand and with nothing changed, or as if never fed; and
 * refused exactly where the kind's slack ends. */
static void trims_are_exact_or_refused(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s), most = 3 * edge + 2, stride = most < 40 ? 1 : most / 20;
    for (uint32_t n = 1; n <= most; n += stride)
        for (uint32_t k = 1; k <= n; k += k < 3 || k + 2 > n ? 1 : stride) {
            struct sennit_cache *c = stage_row(&s, 1, n);
            struct sennit_error err = {0};
            uint64_t before = stage_imprint(&s, c);
            uint64_t least = retention_of(s.tested, &s.g, n).trim_floor;
            uint64_t floor = sennit_cache_minimum_reusable_offset(c, 0);
            least = floor > least ? floor : least;
            bool may = sennit_cache_can_publish_row(c, 0, n - k), can = sennit_cache_is_trimmable(c);
            sennit_status status = sennit_cache_trim(c, k, k % 2, &err);
            assert_true(status == SENNIT_OK || err.message[0] != '\0');
            assert_true(status == SENNIT_OK ? can && may : status == (can ? SENNIT_RANGE : SENNIT_UNSUPPORTED));
            assert_true(status == SENNIT_OK || !may);
            assert_true(!s.tested->retention || (status == SENNIT_OK) == (n - k >= least));
            if (status != SENNIT_OK)
                assert_true(stage_imprint(&s, c) == before);
            stage_same(&s, c, 0, 1, status == SENNIT_OK ? n - k : n);
            sennit_cache_dispose(&c);
        }
    stage_close(&s);
}

/* ---- 7: unequal rows ------------------------------------------------------------------------------------------- */

/* Rows of unequal length, some with nothing to do, among freed storage full of NaN: no step of one row touches
 * another's state, and nothing of what was freed comes out. */
static void a_step_touches_its_own_rows(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *gone[6], *rows[5];
    for (uint32_t i = 0; i < 6; i++)
        gone[i] = stage_row(&s, 70000 * i, 40);
    stage_dispose(gone, 6); /* NaN from here on */
    static const uint32_t start[] = {12, 3, 0, 1, 70}, add[] = {0, 7, 2, 0, 1};
    struct feed feeds[5];
    uint32_t n_feeds = 0;
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = stage_row(&s, 1000 * i, start[i]);
    struct sennit_cache *c = stage_merge(&s, rows, 5), *before[5];
    stage_dispose(rows, 5);
    for (uint32_t i = 0; i < 5; i++) { /* which share what the rows store */
        OK(sennit_cache_clone(c, i, &before[i], err));
        if (add[i])
            feeds[n_feeds++] = (struct feed){.row = i, .seed = 1000 * i + start[i], .n = add[i]};
    }
    stage_feeds(&s, c, feeds, n_feeds);
    for (uint32_t i = 0; i < 5; i++)
        stage_same(&s, before[i], 0, 1000 * i, start[i]);
    for (uint32_t i = 0; i < 5; i++)
        stage_same(&s, c, i, 1000 * i, start[i] + add[i]);
    stage_dispose(before, 5);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- 8: unused rows -------------------------------------------------------------------------------------------- */

/* Never used rows beside used ones, in every place: merged, reordered, taken out, used. */
static void unused_rows_merge_with_used_ones(void **state)
{
    (void)state;
    for (uint32_t mask = 0; mask < 8; mask++) {
        struct stage s;
        stage_open(&s);
        struct sennit_cache *rows[3], *out[3];
        uint32_t n[3], order[] = {2, 0, 1};
        for (uint32_t i = 0; i < 3; i++) {
            n[i] = mask >> i & 1 ? 65 : 0;
            rows[i] = stage_row(&s, 1000 * i, n[i]);
        }
        struct sennit_cache *c = stage_merge(&s, rows, 3), *empty;
        stage_dispose(rows, 3);
        OK(sennit_cache_filter_rows(c, order, 3, err));
        for (uint32_t i = 0; i < 3; i++) {
            stage_same(&s, c, i, 1000 * order[i], n[order[i]]);
            OK(sennit_cache_extract_row(c, i, &out[i], err));
        }
        OK(sennit_cache_filter_rows(c, NULL, 0, err));
        const struct sennit_cache *sources[] = {c, out[0], out[1], out[2]}; /* an emptied layout is a source too */
        OK(sennit_cache_make_empty_batch(c, &empty, err));
        OK(sennit_cache_merge_rows(empty, sources, 4, err));
        for (uint32_t i = 0; i < 3; i++)
            stage_same(&s, empty, i, 1000 * order[i], n[order[i]]);
        stage_dispose(out, 3);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&empty);
        stage_close(&s);
    }
}

/* ---- 9: rejected drafts ---------------------------------------------------------------------------------------- */

/* Every accept count of a window of 0 to 4, another one in every row at once, nothing among them; a row without a
 * draft beside them; then a round in which nobody drafts. */
static void rollback_is_the_straight_run(void **state)
{
    (void)state;
    enum { DEPTH = 4 };
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s), starts[] = {0, 1, edge - 1, edge, edge + 1, 2 * edge + 3};
    for (size_t k = 0; k < SN_ARRAY_LEN(starts); k++)
        for (uint32_t keep = 0; keep <= DEPTH; keep++) {
            uint32_t n = starts[k];
            struct sennit_cache *rows[] = {stage_row(&s, 0, n), stage_row(&s, 1000, 2), stage_row(&s, 2000, n)};
            struct sennit_cache *c = stage_merge(&s, rows, 3);
            uint32_t depth = stage_round(c, 0, DEPTH), a = keep < depth ? keep : depth;
            stage_dispose(rows, 3);
            uint64_t kept[] = {a, 0, depth - a};
            OK(sennit_cache_spec_round_begin(c, err));
            struct feed right[] = {{.row = 0, .seed = n, .n = a}, {.row = 2, .seed = 2000 + n, .n = depth - a}};
            struct feed wrong[] = {{.row = 0, .seed = 77777, .n = depth - a}, {.row = 2, .seed = 77777, .n = a}};
            stage_feeds(&s, c, right, 2); /* windows of two lengths in one step */
            stage_feeds(&s, c, wrong, 2);
            OK(sennit_cache_spec_round_rollback(c, kept, err));
            OK(sennit_cache_spec_round_begin(c, err));
            OK(sennit_cache_spec_round_commit(c, err));
            for (uint32_t i = 0; i < 3; i++)
                stage_same(&s, c, i, 1000 * i, (i == 1 ? 2 : n) + (uint32_t)kept[i]);
            sennit_cache_dispose(&c);
        }
    stage_close(&s);
}

/* ---- 10: geometries -------------------------------------------------------------------------------------------- */

/* Whatever can be created works from the first request on: two rows of unequal length in one step, grouped heads,
 * donors as the kind says, a record; each row as alone, and as the textbook says. What does not work is refused
 * when it is created: the families' own tests have their impossible geometries. */
static void what_is_created_works(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_kv_heads, group;
    } heads[] = {{1, 1}, {1, 8}, {2, 4}, {8, 1}, {3, 2}};
    struct stage s;
    for (size_t k = 0; k < SN_ARRAY_LEN(heads); k++) {
        stage_open(&s);
        if (s.g.config.n_kv_heads) {
            s.g.config.n_kv_heads = heads[k].n_kv_heads;
            s.g.group = heads[k].group;
            s.width = (size_t)n_heads_of(&s.g) * d_out_of(&s.g);
        }
        struct sennit_cache *rows[] = {stage_new(&s, 1), stage_new(&s, 1)}, *c = stage_merge(&s, rows, 2), *out;
        struct feed feeds[] = {{.row = 0, .seed = 1, .n = 66, .out = stage_out(&s, 66)},
                               {.row = 1, .seed = 900, .n = 9, .out = stage_out(&s, 9)}};
        stage_feeds(&s, c, feeds, 2);
        for (uint32_t r = 0; r < 2; r++) {
            float *want = stage_out(&s, feeds[r].n);
            stage_feed(&s, rows[r], 0, feeds[r].seed, feeds[r].n, want);
            assert_memory_equal(want, feeds[r].out, feeds[r].n * s.width * sizeof *want);
            stage_textbook(&s, feeds[r].seed, feeds[r].n, want + (feeds[r].n - 1) * s.width);
            free(want);
            free(feeds[r].out);
        }
        struct sennit_donor *donor = NULL;
        if (c->ops->no_planes)
            REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &donor, err));
        else
            OK(sennit_cache_capture_donor_rows(c, &donor, err));
        sennit_donor_free(donor);
        struct memory m;
        struct sennit_stream stream = memory_writer(&m);
        OK(sennit_cache_save(c, 1, &stream, err));
        stream = memory_reader(&m);
        OK(sennit_cache_load(c, &stream, &out, err));
        stage_same(&s, out, 0, 900, 9);
        free(m.data);
        stage_dispose(rows, 2);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&out);
        stage_close(&s);
    }
}

/* ---- 11: what is in force -------------------------------------------------------------------------------------- */

/* Bytes that the spans of a row's storage hold. */
static uint64_t span_bytes(const struct sennit_cache *c)
{
    struct sennit_state lease;
    uint64_t sum = 0;
    OK(sennit_cache_state(c, &lease, err));
    for (size_t i = 0; i < lease.n_spans; i++)
        sum += lease.spans[i].n_bytes;
    sennit_state_release(&lease);
    return sum;
}

/* What one token of keys and values takes as it was asked for, 0 for kinds of other things: elements of the types, or
 * codes of so many bits with a scale and a bias in f16 per group. */
static uint64_t asked_bytes(const struct stage *s)
{
    const struct sennit_cache_config *c = &s->g.config, *store = c->n_inner == 1 ? c->inner : c;
    if (strcmp(store->family, "affine") == 0)
        return c->n_kv_heads * (c->d_k * store->code.k_bits / 8 + c->d_v * store->code.v_bits / 8 +
                                4 * (c->d_k + c->d_v) / store->code.group);
    if (strcmp(store->family, "plain") == 0 || strcmp(store->family, "naive") == 0)
        return (uint64_t)c->n_kv_heads * (c->d_k + c->d_v) * (c->k_type == SENNIT_F32 ? 4 : 2);
    return 0;
}

/* What a configuration asks for shows in the bytes: those of the allocator are those that were projected, at every
 * length; the data in them is what is stored, but for the heads of pages and tables; and what one token more costs is
 * what bytes_per_token says. */
static void bytes_show_what_is_in_force(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    s.g.config.round_depth = s.g.config.n_snapshots = 0;
    s.g.config.max_span = 1;
    const uint32_t page = s.tested->paged ? sn_page_tokens(&s.g.config) : 1, most = 4 * 64;
    struct sennit_cache *c = stage_new(&s, 1), *empty;
    OK(sennit_cache_make_empty_batch(c, &empty, err));
    for (uint32_t n = 1; n <= most; n++) {
        stage_feed(&s, c, 0, n, 1, NULL);
        uint64_t held = sennit_pool_bytes(s.pool);
        assert_int_equal(held, sennit_cache_current_bytes(c, 0));
        assert_true(held <= sennit_cache_projected_bytes(empty, n));
        if (!s.tested->changes_precision)
            assert_int_equal(held, sennit_cache_projected_bytes(empty, n));
        if (n % 64 || s.tested->retention)
            continue;
        uint64_t data = span_bytes(c), heads = held - data;
        assert_true(asked_bytes(&s) == 0 || data == n * asked_bytes(&s) || s.tested->changes_precision);
        assert_true(data <= held && heads <= 64 * (n / page) + 512 * (n / page / 62 + 1));
        if (page > 1 && !s.tested->changes_precision)
            assert_int_equal(sennit_cache_bytes_per_token(c),
                             (data + (s.tested->rectangle ? 0 : 64 * (n / page))) / n);
    }
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&empty);
    stage_close(&s);
}

/* ---- 12: what counts ------------------------------------------------------------------------------------------- */

/* Tokens that are pending, that were given up or rejected are in no count: not in the row's, not in what can be
 * published, not in a record, not in a donor. */
static void only_entered_tokens_count(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *c = stage_row(&s, 1, 12), *out = NULL;
    struct sennit_span span = {.row = 0, .pos = 12, .n_tokens = stage_round(c, 0, 3)};
    OK(begin_step(c, &s.g, &span, 1, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), 12);
    for (uint64_t n = 0; n < 16; n++)
        assert_false(sennit_cache_can_publish_row(c, 0, n)); /* never within a step */
    REFUSED(SENNIT_STATE, sennit_cache_clone(c, 0, &out, err));
    sennit_cache_append_abort(c);
    uint64_t keep = 1;
    OK(sennit_cache_spec_round_begin(c, err));
    stage_feed(&s, c, 0, 13, 1, NULL);
    stage_feed(&s, c, 0, 88888, 2, NULL);
    assert_false(sennit_cache_can_publish_row(c, 0, 15));
    REFUSED(SENNIT_STATE, sennit_cache_clone(c, 0, &out, err));
    OK(sennit_cache_spec_round_rollback(c, &keep, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), 13);
    assert_true(sennit_cache_can_publish_row(c, 0, 13));
    for (uint64_t n = 14; n < 18; n++)
        assert_false(sennit_cache_can_publish_row(c, 0, n));
    struct sennit_donor *donor;
    if (!c->ops->no_planes) {
        OK(sennit_cache_capture_donor_rows(c, &donor, err));
        assert_true(donor->offsets[0] == 13 && donor->ends[0] == 13);
        sennit_donor_free(donor);
    }
    struct memory m;
    struct sennit_stream stream = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &stream, err));
    stream = memory_reader(&m);
    OK(sennit_cache_load(c, &stream, &out, err));
    stage_same(&s, out, 0, 1, 13);
    stage_same(&s, c, 0, 1, 13);
    free(m.data);
    sennit_cache_dispose(&out);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- 13: shorter prefixes -------------------------------------------------------------------------------------- */

/* A row stands for a shorter prefix exactly where it says so: there a clone is cut back to it, and is that prefix.
 * Everywhere else it does not, and the prefix published at its own length stays what it was. */
static void a_row_stands_for_prefixes_it_can_return_to(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t prompt = stage_edge(&s) + 1, n = prompt + 9 + stage_edge(&s);
    struct sennit_cache *c = stage_row(&s, 1, prompt), *entry, *copy;
    assert_true(sennit_cache_can_publish_row(c, 0, prompt));
    OK(sennit_cache_clone(c, 0, &entry, err)); /* the prompt alone */
    stage_feed(&s, c, 0, 1 + prompt, n - prompt, NULL);
    uint32_t n_yes = 0;
    for (uint32_t want = 0; want <= n + 1; want++) {
        bool may = sennit_cache_can_publish_row(c, 0, want);
        n_yes += may;
        assert_true(may == (want == n) || sennit_cache_is_trimmable(c));
        assert_true(!may || (want <= n && want >= sennit_cache_minimum_reusable_offset(c, 0)));
        if (want > n)
            continue;
        OK(sennit_cache_clone(c, 0, &copy, err));
        assert_true((want == n || sennit_cache_trim(copy, n - want, false, NULL) == SENNIT_OK) == may);
        if (may && (want % 7 == 0 || n - want < 3))
            stage_same(&s, copy, 0, 1, want);
        sennit_cache_dispose(&copy);
    }
    assert_true(n_yes >= 1);
    stage_same(&s, entry, 0, 1, prompt);
    stage_same(&s, c, 0, 1, n);
    sennit_cache_dispose(&entry);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- 14: prefixes of several parts ----------------------------------------------------------------------------- */

/* Longest prefix of at most `most` tokens that every part of one state can return to, or has an entry of; 0: none. */
static uint32_t common_prefix(struct sennit_cache *const *rows, struct sennit_cache *const *entries, size_t n,
                              uint32_t most)
{
    for (uint32_t want = most; want > 0; want--) {
        bool all = true;
        for (size_t i = 0; i < n && all; i++)
            all = sennit_cache_can_publish_row(rows[i], 0, want) || sennit_cache_row_offset(entries[i], 0) == want;
        if (all)
            return want;
    }
    return 0;
}

/* Layers of every kind with this kind among them hold one text. What they share with another text is the least over
 * the layers, at a length that each can give back: there all of them are right. */
static void parts_agree_on_a_prefix(void **state)
{
    (void)state;
    enum { ENTRY = 25, ALL = 40, SHARED = 38, MOST = 64 };
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    struct stage mine, s[MOST];
    struct sennit_cache *rows[MOST], *entries[MOST], *c;
    const struct sennit_cache_part *parts;
    stage_open(&mine);
    c = stage_row(&mine, 1, ALL);
    for (uint64_t want = 0; want <= ALL + 1; want++) { /* its own parts, where it has any */
        bool all = true;
        uint32_t n_parts = sennit_cache_composed(c, &parts);
        for (uint32_t i = 0; i < n_parts; i++)
            all &= sennit_cache_can_publish_row(parts[i].cache, 0, want);
        assert_true(n_parts == 0 || sennit_cache_can_publish_row(c, 0, want) == all);
    }
    sennit_cache_dispose(&c);
    stage_close(&mine);
    bool reaches = true; /* without the kinds that cannot: what the others share */
    for (size_t i = 0; i < n; i++) {
        stage_open_kind(&s[i], &kinds[i]);
        rows[i] = stage_row(&s[i], 1, ENTRY);
        OK(sennit_cache_clone(rows[i], 0, &entries[i], err));
        stage_feed(&s[i], rows[i], 0, 1 + ENTRY, ALL - ENTRY, NULL);
        reaches &= sennit_cache_can_publish_row(rows[i], 0, SHARED);
    }
    uint32_t common = common_prefix(rows, entries, n, SHARED);
    assert_int_equal(common, reaches ? SHARED : ENTRY); /* some part can only go on from the entry: so do all */
    for (size_t i = 0; i < n; i++) {
        bool cut = sennit_cache_can_publish_row(rows[i], 0, common);
        if (cut)
            OK(sennit_cache_trim(rows[i], ALL - common, false, err));
        stage_same(&s[i], cut ? rows[i] : entries[i], 0, 1, common);
        sennit_cache_dispose(&rows[i]);
        sennit_cache_dispose(&entries[i]);
        stage_close(&s[i]);
    }
}

/* ---- 15: all or nothing ---------------------------------------------------------------------------------------- */

/* Records cut anywhere, or with any bit wrong, make nothing. */
static void damaged_records_make_nothing(struct stage *s, const struct sennit_cache *c)
{
    struct memory m;
    struct sennit_cache *out = NULL;
    struct sennit_stream w = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &w, err));
    uint64_t bytes = sennit_pool_bytes(s->pool);
    for (size_t at = 0; at < m.n_bytes; at += at < 160 ? 1 : 1 + m.n_bytes / 64) {
        struct sennit_error err = {0};
        w = memory_reader(&m);
        m.fail_at = at;
        assert_int_equal(sennit_cache_load(c, &w, &out, &err), SENNIT_FORMAT);
        w = memory_reader(&m);
        m.data[at] ^= (uint8_t)(1 << at % 8);
        sennit_status status = sennit_cache_load(c, &w, &out, &err);
        assert_true(status == SENNIT_FORMAT || status == SENNIT_INVALID);
        m.data[at] ^= (uint8_t)(1 << at % 8);
        assert_true(!out && sennit_pool_bytes(s->pool) == bytes);
    }
    free(m.data);
}

static void refused_calls(struct stage *s, struct sennit_cache *c)
{
    static const uint32_t twice[] = {0, 0}, outside[] = {0, 2};
    uint32_t heads = n_heads_of(&s->g);
    uint64_t n = sennit_cache_row_offset(c, 0), keep[] = {0, 0};
    struct sennit_cache *out = NULL;
    const struct sennit_cache *self = c;
    struct sennit_span spans[] = {{.row = 1, .pos = 3, .n_tokens = 1}, {.row = 0, .pos = n + 1, .n_tokens = 1}};
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(c, spans, 2, heads, err)); /* the first one was right */
    spans[1] = (struct sennit_span){.row = 0, .pos = n, .n_tokens = UINT32_MAX};
    REFUSED(SENNIT_RANGE, sennit_cache_append_begin(c, spans, 2, heads, err));
    spans[1] = spans[0];
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(c, spans, 2, heads, err));
    REFUSED(SENNIT_INVALID, sennit_cache_filter_rows(c, twice, 2, err));
    REFUSED(SENNIT_RANGE, sennit_cache_filter_rows(c, outside, 2, err));
    REFUSED(SENNIT_RANGE, sennit_cache_extract_row(c, 2, &out, err));
    REFUSED(SENNIT_STATE, sennit_cache_merge_rows(c, &self, 1, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_commit(c, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_rollback(c, keep, err));
    REFUSED(SENNIT_RANGE, sennit_cache_commit_prefill(c, outside, 2, err));
    sennit_status trim = sennit_cache_is_trimmable(c) ? SENNIT_RANGE : SENNIT_UNSUPPORTED;
    REFUSED(trim, sennit_cache_trim(c, 4, false, err)); /* row 0 could, row 1 has 3 */
    assert_null(out);
}

/* Rows that go back together or not at all: of three rows the last one is too short, or has let go of too much, or
 * the memory for its cut is refused. */
static void refused_trims(struct stage *s)
{
    const uint32_t n = 3 * stage_edge(s) + 1, lengths[][3] = {{n, n, 4}, {6, 6, n}, {n, n, n}};
    for (size_t i = 0; i < SN_ARRAY_LEN(lengths); i++)
        for (uint64_t k = 1; k < 9; k++)
            for (uint64_t fail = 0; fail < 5; fail++) {
                struct sennit_cache *rows[3], *c;
                for (uint32_t r = 0; r < 3; r++)
                    rows[r] = stage_row(s, 1000 * r, lengths[i][r]);
                c = stage_merge(s, rows, 3);
                uint64_t before = stage_imprint(s, c);
                if (fail > 0)
                    sn_heap_fail_at(s->pool->heap, fail); /* the rows share what they store: a cut takes a copy */
                sennit_status status = sennit_cache_trim(c, k, false, NULL);
                sn_heap_fail_at(s->pool->heap, 0);
                assert_true(status == SENNIT_OK || stage_imprint(s, c) == before);
                for (uint32_t r = 0; r < 3 && status == SENNIT_OK; r++)
                    assert_int_equal(sennit_cache_row_offset(c, r), lengths[i][r] - k);
                sennit_cache_dispose(&c);
                stage_dispose(rows, 3);
            }
}

/* Every refused call, with a row among those it names that could have been changed, and every damaged record: after
 * them all is as it was. */
static void refused_calls_change_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    s.g.config.max_tokens = 1000;
    struct sennit_cache *rows[] = {stage_row(&s, 1, 40), stage_row(&s, 500, 3)}, *c = stage_merge(&s, rows, 2);
    stage_dispose(rows, 2);
    uint64_t before = stage_imprint(&s, c), too_much[] = {1, 1};
    refused_calls(&s, c);
    damaged_records_make_nothing(&s, c);
    assert_true(stage_imprint(&s, c) == before);
    OK(sennit_cache_spec_round_begin(c, err));
    stage_feed(&s, c, 0, 41, 1, NULL); /* row 1 has no window */
    uint64_t within = cache_fingerprint(c);
    REFUSED(SENNIT_RANGE, sennit_cache_spec_round_rollback(c, too_much, err));
    REFUSED(SENNIT_STATE, sennit_cache_trim(c, 1, true, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_begin(c, err));
    assert_true(cache_fingerprint(c) == within);
    too_much[1] = 0;
    OK(sennit_cache_spec_round_rollback(c, too_much, err));
    stage_same(&s, c, 0, 1, 41);
    stage_same(&s, c, 1, 500, 3);
    sennit_cache_dispose(&c);
    s.g.config.max_tokens = 0;
    refused_trims(&s);
    stage_close(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_keep_the_kind),
        cmocka_unit_test(positions_are_read_once),
        cmocka_unit_test(one_query_sees_no_padding),
        cmocka_unit_test(extraction_pins_nothing),
        cmocka_unit_test(rows_of_any_lengths_merge_and_go_on),
        cmocka_unit_test(trims_are_exact_or_refused),
        cmocka_unit_test(a_step_touches_its_own_rows),
        cmocka_unit_test(unused_rows_merge_with_used_ones),
        cmocka_unit_test(rollback_is_the_straight_run),
        cmocka_unit_test(what_is_created_works),
        cmocka_unit_test(bytes_show_what_is_in_force),
        cmocka_unit_test(only_entered_tokens_count),
        cmocka_unit_test(a_row_stands_for_prefixes_it_can_return_to),
        cmocka_unit_test(parts_agree_on_a_prefix),
        cmocka_unit_test(refused_calls_change_nothing),
    };
    return stage_run(argc, argv, tests, SN_ARRAY_LEN(tests));
}
