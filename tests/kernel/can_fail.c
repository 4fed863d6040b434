/* kcheck-can-fail: a kernel that is wrong in one bit, one that writes past its end, one that reads
 * past its end and one that crashes must each be found and named. The kernels are wrapped here and
 * put into the table kcheck is given. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kcheck/kcheck.h"

static struct sn_kernels honest;

static void wrong_bit(float *x, const float *y, size_t n)
{
    honest.add(x, y, n);
    uint32_t u;
    if (n == 37) {
        memcpy(&u, &x[36], sizeof u);
        u ^= 1;
        memcpy(&x[36], &u, sizeof u);
    }
}

static void writes_too_far(float *x, const float *y, size_t n)
{
    honest.add(x, y, n);
    volatile float *out = x;
    if (n == 12)
        out[n] = 1;
}

static void reads_too_far(float *x, const float *y, size_t n)
{
    volatile const float *in = y;
    if (n == 12)
        (void)in[n];
    honest.add(x, y, n);
}

static void writes_its_input(float *x, const float *y, size_t n)
{
    honest.add(x, y, n);
    volatile float *in = (float *)(uintptr_t)y;
    if (n == 5)
        in[0] = 0;
}

static void illegal(float *x, const float *y, size_t n)
{
    honest.add(x, y, n);
    if (n == 3)
        raise(SIGILL);
}

struct wrong {
    const char *name;
    sn_add_fn fn;
    const char *report; /* must appear in what kcheck prints */
};

static bool found(const struct wrong *w)
{
    struct sn_kernels table = honest;
    table.add = w->fn;
    char *text = NULL;
    size_t n_text = 0;
    FILE *out = open_memstream(&text, &n_text);
    if (!out)
        return false;
    struct kcheck_opts opts = {
        .isa = -1, .kernel = "add", .seed = 7, .quick = true, .out = out, .table = &table};
    int rc = kcheck_main(&opts);
    fclose(out);
    bool ok = w->report ? rc == 1 && strstr(text, w->report) && strstr(text, "FAIL add, level ")
                        : rc == 0;
    if (!ok)
        printf("%s: kcheck returned %d and said\n%s", w->name, rc, text);
    else
        printf("%s: %s\n", w->name, w->report ? "found" : "passes");
    free(text);
    return ok;
}

int main(void)
{
    static const struct wrong cases[] = {
        {"the honest kernel", NULL, NULL},
        {"one wrong bit", wrong_bit, "differ, the first at 36"},
        {"a write past the end", writes_too_far, "Segmentation fault"},
        {"a read past the end", reads_too_far, "Segmentation fault"},
        {"a write to an input", writes_its_input, "Segmentation fault"},
        {"an illegal instruction", illegal, "Illegal instruction"},
    };
    struct sn_cpu cpu = sn_cpu_detect();
    if (sn_kernels_init(&honest, sn_isa_best(&cpu), &cpu, NULL) != SENNIT_OK)
        return 1;
    int n_bad = 0;
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++) {
        struct wrong w = cases[i];
        if (!w.fn)
            w.fn = honest.add;
        n_bad += !found(&w);
    }
    return n_bad != 0;
}
