/* Stores into cache types: every rounding case, strides, and nothing written between the elements.
 */
#include "kcheck/kcheck.h"

static sn_store_fn slot_of(const struct sn_kernels *k, enum sn_kernel_id id)
{
    return id == SN_K_store_f32   ? k->store_f32
           : id == SN_K_store_f16 ? k->store_f16
                                  : k->store_bf16;
}

static void one_case(struct kcheck *c, enum sn_kernel_id id, size_t n, size_t stride,
                     enum kcheck_shape shape)
{
    size_t size = id == SN_K_store_f32 ? 4 : 2, n_bytes = n ? ((n - 1) * stride + 1) * size : 0;
    float *x = kcheck_f32(c, n, shape);
    for (size_t i = 0; i < n; i++) { /* near the f16 range, half of them */
        uint32_t u;
        if (shape != KC_BITS || i % 2)
            continue;
        memcpy(&u, &x[i], sizeof u);
        u = (u & 0x80FFFFFFu) | (0x33u + (u >> 24 & 31) % 0x15) << 24;
        memcpy(&x[i], &u, sizeof u);
    }
    uint8_t *want = kcheck_out(c, n_bytes, size), *got = kcheck_out(c, n_bytes, size);
    slot_of(c->ref, id)(x, n, want, stride);
    slot_of(c->dut, id)(x, n, got, stride);
    kcheck_same_bytes(c, want, got, n_bytes, "n=%zu stride %zu shape %d", n, stride, (int)shape);
    kcheck_end_case(c);
}

void kcheck_check_store(struct kcheck *c)
{
    static const enum sn_kernel_id ids[] = {SN_K_store_f32, SN_K_store_f16, SN_K_store_bf16};
    static const size_t strides[] = {1, 2, 16, 37};
    for (size_t s = 0; s < SN_ARRAY_LEN(ids); s++) {
        if (!kcheck_begin(c, ids[s]))
            continue;
        for (size_t n = 0; n <= 65; n++)
            for (size_t i = 0; i < SN_ARRAY_LEN(strides); i++)
                for (int shape = KC_NORMAL; shape <= KC_BITS; shape++)
                    one_case(c, ids[s], n, strides[i], (enum kcheck_shape)shape);
        for (size_t i = 0; i < (c->opts->long_run ? 20000u : c->opts->quick ? 2u : 40u); i++)
            one_case(c, ids[s], 4096, 1, KC_BITS);
    }
}

struct timed {
    sn_store_fn fn;
    size_t stride;
    float x[64];
    float y[64 * 16];
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->fn(t->x, 64, t->y, t->stride);
}

void kcheck_bench_store(struct kcheck *c)
{
    static const enum sn_kernel_id ids[] = {SN_K_store_f32, SN_K_store_f16, SN_K_store_bf16};
    static struct timed t;
    kcheck_fill(&c->rng, t.x, 64, KC_NORMAL);
    for (size_t s = 0; s < SN_ARRAY_LEN(ids); s++)
        for (t.stride = 1; t.stride <= 16; t.stride += 15) {
            t.fn = slot_of(c->dut, ids[s]);
            if (kcheck_wanted(c, ids[s]))
                kcheck_time(c, ids[s], t.stride == 1 ? "n=64" : "n=64 stride 16", 64, "G/s",
                            run_timed, &t);
        }
}
