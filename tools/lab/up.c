/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim lab up. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../command.h"
#include "supervisor.h"

static bool take_number(const char *name, const char *value, unsigned least, unsigned most, unsigned *number)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (end == value || *end || n < least || n > most) {
		complain("--%s takes a number from %u to %u", name, least, most);
		return false;
	}
	*number = (unsigned)n;
	return true;
}

static bool take_seed(const char *value, uint64_t *seed)
{
	char *end;

	*seed = strtoull(value, &end, 10);
	return (end != value && !*end) || refuse_value("seed", value);
}

static const char *topology = "star"; /* is read when the number of hosts is known */

static bool take_option(void *context, const char *name, const char *value)
{
	struct lab_plan *plan = context;

	if (strcmp(name, "hosts") == 0)
		return take_number(name, value, 1, LAB_HOSTS_MAX, &plan->topology.hosts);
	if (strcmp(name, "seed") == 0)
		return take_seed(value, &plan->topology.seed);
	if (strcmp(name, "topology") == 0)
		return (topology = value);
	if (strcmp(name, "mtu") == 0)
		return take_number(name, value, LAB_MTU_MIN, LAB_MTU_MAX, &plan->mtu);
	if (!lab_is_name(value))
		return refuse_value(name, value);
	strcpy(plan->name, value);
	return true;
}

int command_lab_up(int argc, char **argv)
{
	struct lab_plan plan = { .name = LAB_DEFAULT_NAME, .mtu = LAB_MTU };
	int first = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, &plan), control;

	if (first < 0)
		return EXIT_OURS;
	if (first < argc)
		return complain("lab up does not know '%s'", argv[first]);
	if (!plan.topology.hosts)
		return complain("lab up needs --hosts");
	if (!lab_topology_parse(&plan.topology, topology))
		return complain("--topology takes star, line or leaf-spine:LEAVES,SPINES, "
				"with no more leaves than hosts");
	if (!lab_start(&plan, &control))
		return EXIT_OURS;
	if (!lab_send(control, LAB_GO, NULL, 0, NULL, 0))
		return complain("the lab was killed as soon as it was made");
	return 0;
}
