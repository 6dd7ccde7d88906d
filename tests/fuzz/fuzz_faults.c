/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any text as an expression of faults: it is refused with a place within it, or read as rules that can be
 * explained and asked, and that read again from their own text as the same rules.
 */
#include <errno.h>

#include "faults/plan.h"
#include "fuzz.h"

static struct vb_fault_plan plan, again;
static struct vb_fault_state state;

static void ask(void)
{
	static const uint8_t peer[16];
	memset(&state, 0, sizeof(state));
	for (unsigned site = VB_FAULT_PACKET; site <= VB_FAULT_MESSAGE; site++) {
		struct vb_fault_subject s = { .site = (enum vb_fault_site)site,
					      .elapsed_ns = UINT64_MAX,
					      .packets = UINT32_MAX,
					      .completion = UINT32_MAX,
					      .verb = "ibv_post_send",
					      .message = 0x10,
					      .qp = 1,
					      .port = 1,
					      .peer = peer };
		struct vb_fault_bite bite;
		unsigned cursor = 0;
		while (vb_fault_next(&plan, &state, &s, &cursor, &bite)) {
			must(bite.number >= 1 && bite.number <= plan.count);
			if (bite.rule->kind == VB_FAULT_DELAY) {
				uint64_t ns = vb_fault_delay_ns(&bite);
				must(ns >= bite.rule->time_ns && ns <= bite.rule->time_max_ns);
			}
		}
	}
}

static void check_rule(const char *text, const struct vb_fault_rule *r)
{
	struct vb_fault_error error;
	char line[512];
	must(vb_fault_explain(r, line, sizeof(line)) < sizeof(line) - 1);
	must(vb_fault_parse(text + r->at, r->bytes, &again, &error) == 0);
	must(again.count == 1 && again.rules[0].kind == r->kind && again.rules[0].bytes == r->bytes);
	must(again.rules[0].first == r->first && again.rules[0].last == r->last &&
	     again.rules[0].time_ns == r->time_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct vb_fault_error error = { 0 };
	if (vb_fault_parse(text, size, &plan, &error)) {
		must(error.why && error.at <= size && error.bytes <= size - error.at);
		return 0;
	}
	must(plan.count <= VB_FAULT_RULES);
	for (unsigned i = 0; i < plan.count; i++)
		check_rule(text, &plan.rules[i]);
	ask();
	return 0;
}
