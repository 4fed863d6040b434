/* Batch forming, admission and stop strings as pure functions. */
#include "sched/policy.h"
#include "sched/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void running_rows_come_first(void **state)
{
    (void)state;
    const struct sn_want wants[] = {
        {700, UINT64_MAX, false}, {1, UINT64_MAX, false}, {30, UINT64_MAX, false}, {1, UINT64_MAX, false}};
    uint32_t n[4];
    sn_form_spans(wants, 4, 64, 70, 4, n);
    assert_int_equal(n[1], 1);
    assert_int_equal(n[3], 1);
    assert_int_equal(n[0], 64); /* the first prompt gets a whole chunk */
    assert_int_equal(n[2], 4);  /* the second one what is left of 70 */
    sn_form_spans(wants, 4, 1000, 2, 4, n);
    assert_int_equal(n[0] + n[2], 0); /* a long prompt never takes a running row's place */
    assert_int_equal(n[1] + n[3], 2);
}

static void boundaries_cut_spans(void **state)
{
    (void)state;
    const struct sn_want wants[] = {{100, 10, false}, {5, UINT64_MAX, false}};
    uint32_t n[2];
    sn_form_spans(wants, 2, 512, 512, 2, n);
    assert_int_equal(n[0], 10);
    assert_int_equal(n[1], 5);
}

static void reported_prompts_share_the_spare_logits(void **state)
{
    (void)state;
    const struct sn_want wants[] = {{100, UINT64_MAX, true}, {1, UINT64_MAX, false}, {90, UINT64_MAX, false},
                                    {50, 3, true},           {9, UINT64_MAX, true},  {1, UINT64_MAX, true}};
    uint32_t n[6];
    sn_form_spans(wants, 6, 64, 500, 6 + 16, n);
    assert_int_equal(n[0], 17); /* its own row of logits and all that are spare */
    assert_int_equal(n[1], 1);
    assert_int_equal(n[2], 64); /* a prompt that is not reported is read as ever */
    assert_int_equal(n[3], 1);  /* nothing is spare, but it goes on */
    assert_int_equal(n[4], 1);
    assert_int_equal(n[5], 1);
    sn_form_spans(wants + 3, 3, 64, 500, 3 + 5, n);
    assert_int_equal(n[0], 3); /* its boundary leaves 3 of the 5 to the next one */
    assert_int_equal(n[1], 4);
    assert_int_equal(n[2], 1);
    sn_form_spans(wants, 6, 64, 7, 6 + 16, n);
    assert_int_equal(n[0], 5); /* the step's tokens bound it too, after the two running rows */
}

static void admission(void **state)
{
    (void)state;
    assert_int_equal(sn_admit(101, 0, 100, 0, 4), SN_NEVER);
    assert_int_equal(sn_admit(100, 0, 100, 0, 4), SN_ADMIT);
    assert_int_equal(sn_admit(50, 51, 100, 1, 4), SN_WAIT);
    assert_int_equal(sn_admit(50, 50, 100, 1, 4), SN_ADMIT);
    assert_int_equal(sn_admit(1, 0, 100, 4, 4), SN_WAIT);
    assert_int_equal(sn_admit(1, UINT64_MAX, 100, 1, 4), SN_WAIT);
}

static void scan(const char *stop1, const char *stop2, const char *text, size_t from, bool found, size_t safe)
{
    char *strings[2] = {(char *)(uintptr_t)stop1, (char *)(uintptr_t)stop2};
    size_t lens[2] = {strlen(stop1), stop2 ? strlen(stop2) : 0}, got = 999;
    struct sn_stop_list list = {strings, lens, stop2 ? 2 : 1};
    assert_int_equal(sn_stop_scan(&list, text, from, strlen(text), &got), found);
    assert_int_equal(got, safe);
}

static void stop_strings(void **state)
{
    (void)state;
    scan("END", NULL, "some text", 0, false, 9);
    scan("END", NULL, "some tEND more", 0, true, 6);
    scan("END", NULL, "some tEN", 0, false, 6);  /* could still become END */
    scan("END", NULL, "some EENDx", 0, true, 6); /* a start that failed, then the string */
    scan("END", NULL, "EEE", 0, false, 2);
    scan("abab", NULL, "xxabab", 2, true, 2);
    scan("abab", NULL, "xaba", 0, false, 1);
    scan("longer stop", "st", "a longer stx", 0, true, 9); /* what "longer st" held back holds a whole "st" */
    scan("b", "ab", "xxab", 0, true, 2);                   /* earliest start wins */
    scan("x", NULL, "", 0, false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_rows_come_first),
        cmocka_unit_test(boundaries_cut_spans),
        cmocka_unit_test(reported_prompts_share_the_spare_logits),
        cmocka_unit_test(admission),
        cmocka_unit_test(stop_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
