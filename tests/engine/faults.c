/* A NaN or an infinity in a weight, or one that finite weights make in the middle of a layer, never becomes an
 * answer: the row ends with an error that says so, on every instruction set, and rows that did not touch the value
 * keep their bits. And one flipped bit of a weight shows in the digest. */
#include "engine/run.h"
#include "format/gguf.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_ROWS = 4, N_PROMPT = 24, N_ANSWER = 6, MAX_ROW = 4096 };

static const sennit_type types[] = {SENNIT_F32, SENNIT_F16, SENNIT_BF16, SENNIT_Q8_0, SENNIT_Q4_0, SENNIT_Q4_1};
enum { N_TYPES = sizeof types / sizeof *types };

/* A value to plant, in both widths that floats and block scales have; BF16 has the upper half of
 * the f32 one. */
static const struct fault {
    const char *name;
    uint32_t f32;
    uint16_t f16;
} values[] = {{"NaN", 0x7FC00000u, 0x7E00},
              {"negative NaN", 0xFFC00001u, 0xFE01},
              {"infinity", 0x7F800000u, 0x7C00},
              {"negative infinity", 0xFF800000u, 0xFC00}};
enum { N_VALUES = sizeof values / sizeof *values };

struct job_set {
    int32_t ids[N_ROWS][N_PROMPT];
    struct run_job jobs[N_ROWS];
    struct run_result want[N_ROWS]; /* of the undamaged model */
};

/* ---- damaged files
 * --------------------------------------------------------------------------------------------- */

struct place {
    uint32_t type;
    size_t at, row_bytes; /* in the file */
};

static struct place find(const struct gguf_bytes *file, const char *tensor)
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    sn_heap_init(&heap, NULL);
    MUST(sn_gguf_open_memory(&g, &heap, file->data, file->len, err));
    const struct sn_gguf_tensor *t = sn_gguf_tensor(g, tensor);
    CHECK(t != NULL, "no tensor %s", tensor);
    size_t rows = (size_t)(t->dims[1] * t->dims[2] * t->dims[3]);
    struct place p = {t->type, (size_t)((const uint8_t *)t->data - file->data), t->n_bytes / rows};
    sn_gguf_close(g);
    return p;
}

/* Puts the value in the middle of row `row`: into a number, or into the scale of the first block
 * (`second`: into the offset that Q4_1 has after it). */
static void plant(struct gguf_bytes *file, const char *tensor, size_t row, const struct fault *v, bool second)
{
    struct place p = find(file, tensor);
    uint8_t *at = file->data + p.at + row * p.row_bytes;
    if (p.type == SENNIT_F32)
        memcpy(at + p.row_bytes / 8 * 4, &v->f32, 4);
    else if (p.type == SENNIT_F16)
        memcpy(at + p.row_bytes / 4 * 2, &v->f16, 2);
    else if (p.type == SENNIT_BF16)
        memcpy(at + p.row_bytes / 4 * 2, (const uint8_t *)&v->f32 + 2, 2);
    else
        memcpy(at + (second ? 2 : 0), &v->f16, 2);
}

static struct sennit_model *open_bytes(const struct gguf_bytes *file)
{
    char path[256];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/sennit-fault-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(path);
    CHECK(fd >= 0, "cannot make %s", path);
    close(fd);
    gguf_bytes_save(file, path);
    struct sennit_model *m = NULL;
    struct sennit_model_options o = {.n_threads = 1};
    MUST(sennit_model_open(&m, path, &o, err));
    run_unlink(path);
    return m;
}

static void run_all(const struct sennit_model *m, const char *isa, const struct run_job *jobs,
                    struct run_result *results)
{
    struct run_setting s = {.isa = isa, .n_threads = 2, .chunk = 7, .max_rows = N_ROWS};
    struct sennit_engine *engine = run_engine(m, &s);
    run_jobs(engine, jobs, N_ROWS, results);
    const struct sennit_stats *stats = sennit_engine_stats(engine);
    CHECK(stats->cache_bytes == 0 && stats->cache_reserved == 0, "%llu bytes left",
          (unsigned long long)stats->cache_bytes);
    sennit_engine_free(engine);
}

static void check_error(const struct run_result *r, const char *where)
{
    CHECK(r->finish == SENNIT_FINISH_ERROR && r->error.code == SENNIT_NUMERIC, "%s: finish %s, %s, %zu tokens", where,
          sennit_finish_name(r->finish), sennit_status_name(r->error.code), r->n_answer);
    CHECK(strstr(r->error.message, "NaN"), "%s: message '%s'", where, r->error.message);
}

static void check_good(const struct run_result *got, const struct run_result *want, const char *where)
{
    CHECK(got->finish == SENNIT_FINISH_LENGTH && got->digest == want->digest && got->n_answer == want->n_answer &&
              memcmp(got->answer, want->answer, want->n_answer * sizeof *want->answer) == 0 &&
              memcmp(got->logprobs, want->logprobs, want->n_answer * sizeof *want->logprobs) == 0,
          "%s: finish %s, digest %016" PRIx64 ", not %016" PRIx64 " as without the fault", where,
          sennit_finish_name(got->finish), got->digest, want->digest);
}

/* ---- weights that every row uses
 * ------------------------------------------------------------------------------- */

static size_t shared_weights(const struct gguf_bytes *good, sennit_type type, const struct job_set *set)
{
    static const struct {
        const char *tensor;
        size_t row; /* the head's: a vocabulary entry that nobody need choose */
    } plants[] = {{"blk.0.attn_norm.weight", 0},   {"blk.0.attn_q.weight", 5},   {"blk.1.attn_q.weight", 20},
                  {"blk.0.attn_k.weight", 3},      {"blk.0.attn_v.weight", 9},   {"blk.1.attn_v.weight", 31},
                  {"blk.0.attn_output.weight", 1}, {"blk.1.ffn_norm.weight", 0}, {"blk.0.ffn_gate.weight", 40},
                  {"blk.1.ffn_gate.weight", 95},   {"blk.0.ffn_up.weight", 77},  {"blk.0.ffn_down.weight", 10},
                  {"blk.1.ffn_down.weight", 63},   {"output_norm.weight", 0},    {"output.weight", 299}};
    size_t n = 0;
    char where[160];
    for (size_t p = 0; p < sizeof plants / sizeof *plants; p++)
        for (int v = 0; v < N_VALUES; v++)
            for (int second = 0; second <= (type == SENNIT_Q4_1); second++) {
                struct gguf_bytes bad = {0};
                gguf_bytes_put(&bad, good->data, good->len);
                plant(&bad, plants[p].tensor, plants[p].row, &values[v], second);
                struct sennit_model *m = open_bytes(&bad);
                gguf_bytes_free(&bad);
                for (const char *const *isa = run_isas(); *isa; isa++) {
                    struct run_result got[N_ROWS];
                    run_all(m, *isa, set->jobs, got);
                    for (int i = 0; i < N_ROWS; i++, n++) {
                        snprintf(where, sizeof where, "%s, %s%s in %s, %s, row %d", sennit_type_name(type),
                                 values[v].name, second ? " (offset)" : "", plants[p].tensor, *isa, i);
                        check_error(&got[i], where);
                    }
                }
                sennit_model_free(m);
            }
    return n;
}

/* ---- one token's embedding
 * ------------------------------------------------------------------------------------- */

/* A token that no row reads or writes. */
static int32_t unused_token(const struct job_set *set, uint32_t n_vocab)
{
    bool used[TINY_MAX_VOCAB] = {false};
    for (int i = 0; i < N_ROWS; i++) {
        for (int j = 0; j < N_PROMPT; j++)
            used[set->ids[i][j]] = true;
        for (size_t j = 0; j < set->want[i].n_answer; j++)
            used[set->want[i].answer[j]] = true;
    }
    for (uint32_t id = TINY_N_SPECIAL; id < n_vocab; id++)
        if (!used[id])
            return (int32_t)id;
    CHECK(false, "every token is used");
    return 0;
}

/* Rows 0 and 2 meet the token: in the prompt's first, an inner or the last place, or (row 2 of the
 * last case) as a token of their own answer. Rows 1 and 3 do not. */
static size_t one_embedding(const struct gguf_bytes *good, sennit_type type, const struct job_set *set)
{
    int32_t poison = unused_token(set, 300);
    size_t n = 0;
    char where[160];
    for (int v = 0; v < N_VALUES; v++) {
        struct gguf_bytes bad = {0};
        gguf_bytes_put(&bad, good->data, good->len);
        plant(&bad, "token_embd.weight", (size_t)poison, &values[v], false);
        struct sennit_model *m = open_bytes(&bad);
        gguf_bytes_free(&bad);
        for (const char *const *isa = run_isas(); *isa; isa++) {
            static const size_t at[] = {0, 11, 19};
            for (size_t a = 0; a < sizeof at / sizeof *at; a++) {
                struct job_set hit = *set;
                struct run_result got[N_ROWS];
                struct sennit_bias force = {poison, 1e6f};
                hit.ids[0][at[a]] = poison;
                for (int i = 0; i < N_ROWS; i++)
                    hit.jobs[i].prompt = hit.ids[i];
                hit.jobs[2].sampling.biases = &force;
                hit.jobs[2].sampling.n_biases = 1;
                run_all(m, *isa, hit.jobs, got);
                for (int i = 0; i < N_ROWS; i++, n++) {
                    snprintf(where, sizeof where, "%s, %s in an embedding, %s, case %zu, row %d",
                             sennit_type_name(type), values[v].name, *isa, a, i);
                    if (i % 2)
                        check_good(&got[i], &set->want[i], where);
                    else
                        check_error(&got[i], where);
                }
                CHECK(got[0].n_answer == 0 && got[2].n_answer == 1, "%s: %zu and %zu tokens before the error", where,
                      got[0].n_answer, got[2].n_answer);
            }
        }
        sennit_model_free(m);
    }
    return n;
}

/* ---- flipped bits
 * ---------------------------------------------------------------------------------------------- */

static size_t flipped_bits(const struct gguf_bytes *good, sennit_type type, const struct job_set *set)
{
    static const char *const tensors[] = {
        "blk.0.attn_norm.weight",   "blk.0.attn_q.weight",   "blk.0.attn_k.weight",   "blk.1.attn_v.weight",
        "blk.1.attn_output.weight", "blk.1.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
        "blk.1.ffn_down.weight",    "output_norm.weight",    "output.weight"};
    uint64_t state = 3;
    size_t n = 0;
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++)
        for (int k = 0; k < 3; k++, n++) {
            struct gguf_bytes bad = {0};
            struct run_result got[N_ROWS];
            gguf_bytes_put(&bad, good->data, good->len);
            struct place p = find(&bad, tensors[t]);
            /* The highest bit of a float's mantissa: a change that 16-bit keys and values cannot
             * round away. Or a bit of a block's codes, behind scale and offset. */
            size_t width = p.type == SENNIT_F32 ? 4 : 2, unit = run_random(&state) % (p.row_bytes / width);
            size_t at = p.at + unit * width + (p.type == SENNIT_F32 ? 2 : p.type == SENNIT_F16 ? 1 : 0);
            uint8_t bit = p.type == SENNIT_F16 ? 0x02 : 0x40;
            if (p.type != SENNIT_F32 && p.type != SENNIT_F16 && p.type != SENNIT_BF16)
                at = p.at + 4 + run_random(&state) % 14;
            bad.data[at] ^= bit;
            struct sennit_model *m = open_bytes(&bad);
            gguf_bytes_free(&bad);
            run_all(m, NULL, set->jobs, got);
            for (int i = 0; i < N_ROWS; i++)
                CHECK(got[i].digest != set->want[i].digest, "%s: a flipped bit at byte %zu of %s does not show",
                      sennit_type_name(type), at - p.at, tensors[t]);
            sennit_model_free(m);
        }
    return n;
}

/* ---- overflow on the way
 * -------------------------------------------------------------------------------------- */

/* Multiplies a whole tensor by 2^exponent: f32 and BF16 values, or the scales (and offsets) of blocks. */
static void enlarge(struct gguf_bytes *file, const char *tensor, size_t rows, int exponent)
{
    struct place p = find(file, tensor);
    for (size_t i = 0; i < rows * p.row_bytes / 4 && p.type == SENNIT_F32; i++) {
        float v;
        memcpy(&v, file->data + p.at + i * 4, 4);
        v = ldexpf(v, exponent);
        CHECK(isfinite(v), "%s: a weight is not finite", tensor);
        memcpy(file->data + p.at + i * 4, &v, 4);
    }
    for (size_t i = 0; i < rows * p.row_bytes / 2 && p.type == SENNIT_BF16; i++) {
        uint32_t u = 0;
        float v;
        memcpy((uint8_t *)&u + 2, file->data + p.at + i * 2, 2);
        memcpy(&v, &u, 4);
        v = ldexpf(v, exponent);
        CHECK(isfinite(v), "%s: a weight is not finite", tensor);
        memcpy(&u, &v, 4);
        memcpy(file->data + p.at + i * 2, (uint8_t *)&u + 2, 2);
    }
}

/* Every weight is finite, and an activation is not. The norms are f32 in every file, so they can be large in all
 * of them; what is reached, in this order of places in a layer:
 *   attn_norm x 2^126       the normed input is near the end of f32, or past it; the products of q, k and v overflow
 *                           (in quantized types the activation's block scale, or the product with the weights'), and
 *                           so do keys and values in 16 bits
 *   ffn_norm x 2^126        the same before gate and up: silu(inf), inf * inf or inf * 0
 *   ffn_norm x 2^70         gate and up are finite, and silu(gate) * up overflows: only in the elementwise product
 *   output_norm x 2^127     only behind the layers: the last normed vector, or the logits
 *   ffn_up, ffn_down large  in F32 and BF16: the product of down overflows although norm, gate and up were finite
 * A row that meets it ends with an error; nothing becomes a token. */
static size_t overflows(const struct gguf_bytes *good, sennit_type type, const struct job_set *set)
{
    static const struct {
        const char *tensor, *second; /* both enlarged */
        size_t rows, second_rows;
        int exponent;
        bool floats_only;
    } cases[] = {
        {"blk.0.attn_norm.weight", NULL, 1, 0, 126, false},
        {"blk.1.attn_norm.weight", NULL, 1, 0, 126, false},
        {"blk.0.ffn_norm.weight", NULL, 1, 0, 126, false},
        {"blk.1.ffn_norm.weight", NULL, 1, 0, 126, false},
        {"blk.0.ffn_norm.weight", NULL, 1, 0, 70, false},
        {"output_norm.weight", NULL, 1, 0, 127, false},
        {"blk.0.ffn_up.weight", "blk.0.ffn_down.weight", 96, 64, 70, true},
    };
    size_t n = 0;
    char where[160];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        if (cases[c].floats_only && type != SENNIT_F32 && type != SENNIT_BF16)
            continue;
        struct gguf_bytes bad = {0};
        gguf_bytes_put(&bad, good->data, good->len);
        enlarge(&bad, cases[c].tensor, cases[c].rows, cases[c].exponent);
        if (cases[c].second)
            enlarge(&bad, cases[c].second, cases[c].second_rows, cases[c].exponent);
        struct sennit_model *m = open_bytes(&bad);
        gguf_bytes_free(&bad);
        for (const char *const *isa = run_isas(); *isa; isa++) {
            struct run_result got[N_ROWS];
            run_all(m, *isa, set->jobs, got);
            for (int i = 0; i < N_ROWS; i++, n++) {
                snprintf(where, sizeof where, "%s, finite %s times 2^%d, %s, row %d", sennit_type_name(type),
                         cases[c].tensor, cases[c].exponent, *isa, i);
                check_error(&got[i], where);
            }
        }
        sennit_model_free(m);
    }
    return n;
}

static void make_jobs(struct job_set *set)
{
    static const size_t lengths[N_ROWS] = {20, 1, 13, N_PROMPT};
    uint64_t state = 77;
    memset(set, 0, sizeof *set);
    for (int i = 0; i < N_ROWS; i++) {
        run_random_ids(&state, 100, set->ids[i], N_PROMPT); /* the lower ids: leaves some unused */
        set->jobs[i] = (struct run_job){.prompt = set->ids[i],
                                        .n_prompt = lengths[i],
                                        .max_tokens = N_ANSWER,
                                        .join_step = (uint32_t)i % 2,
                                        .cancel_step = RUN_NEVER};
    }
}

int main(void)
{
    static struct job_set set;
    for (int t = 0; t < N_TYPES; t++) {
        struct tiny_spec spec = tiny_spec_default();
        struct gguf_bytes good = {0};
        spec.type = spec.embd_type = types[t];
        spec.tied = false;
        tiny_model_build(&spec, &good);
        struct sennit_model *m = open_bytes(&good);
        make_jobs(&set);
        run_all(m, "scalar", set.jobs, set.want);
        sennit_model_free(m);
        for (int i = 0; i < N_ROWS; i++)
            CHECK(set.want[i].finish == SENNIT_FINISH_LENGTH, "row %d: %s", i, set.want[i].error.message);
        size_t shared = shared_weights(&good, types[t], &set), rows = one_embedding(&good, types[t], &set),
               bits = flipped_bits(&good, types[t], &set), over = overflows(&good, types[t], &set);
        printf("%-4s %zu rows over damaged weights all ended with an error; %zu rows around a "
               "damaged embedding: those "
               "that met it ended, the others kept their bits; %zu flipped bits all showed; %zu rows "
               "whose activations overflowed ended with an error\n",
               sennit_type_name(types[t]), shared, rows, bits, over);
        gguf_bytes_free(&good);
    }
    return 0;
}
