/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim lab up. */
#include <string.h>
#include <unistd.h>

#include "../command.h"
#include "load.h"
#include "supervisor.h"

static bool take_option(void *context, const char *name, const char *value)
{
	return lab_take_wish(context, name, value);
}

/* False after a message. */
static bool shape(struct lab_plan *plan, const struct lab_wishes *wishes)
{
	char why[LAB_WHY_BYTES];

	plan->mtu = LAB_MTU;
	if (!wishes->hosts) {
		complain("lab up needs --hosts, or a file as --topology");
		return false;
	}
	if (lab_topology_open(&plan->topology, wishes->hosts, NULL, why) &&
	    lab_topology_shape(&plan->topology, wishes->topology ? wishes->topology : "star", why))
		return true;
	complain("--topology: %s", why);
	return false;
}

/* What is no shape is a file, which says how many hosts there are. */
static bool make_plan(struct lab_scenario *s, const struct lab_wishes *wishes)
{
	if (!wishes->topology || lab_topology_is_shape(wishes->topology))
		return shape(&s->plan, wishes);
	if (access(wishes->topology, F_OK) != 0)
		complain("--topology takes star, line, leaf-spine:LEAVES,SPINES or a file: there is no %s",
			 wishes->topology);
	else if (wishes->hosts)
		complain("the file that --topology names says how many hosts there are: no --hosts");
	else
		return lab_load(s, wishes->topology);
	return false;
}

int command_lab_up(int argc, char **argv)
{
	struct lab_wishes wishes = { 0 };
	struct lab_scenario scenario = { 0 };
	struct lab_plan *plan = &scenario.plan;
	int first = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, &wishes), control;
	char why[LAB_TEXT_BYTES];

	if (first < 0)
		return EXIT_OURS;
	if (first < argc)
		return complain("lab up takes no argument: '%s'", argv[first]);
	if (lab_is_inside()) /* nobody could call at it, nor end it */
		return complain("a lab is not made within another");
	if (!make_plan(&scenario, &wishes))
		return EXIT_OURS;
	strcpy(plan->name, LAB_DEFAULT_NAME);
	lab_apply_wishes(&wishes, plan);
	if (!lab_start(plan, &control, why))
		return complain("%s", why);
	if (!lab_send(control, LAB_GO, NULL, 0, NULL, 0))
		return complain("the lab was killed as soon as it was made");
	return 0;
}
