// SPDX-License-Identifier: Apache-2.0
/*
 * SOFTDOCA_FAULTS: rules for dgkit's provider fault, separated by `;`. A rule is an action and its
 * conditions, which are the fields of dg_fault_rule:
 *
 *	error every=10 status=io_failed; delay ms=5 min_size=4096; lose skip=3 count=1
 */
#include <stdlib.h>
#include <string.h>

#include "devices.h"

struct named {
	const char *name;
	uint64_t value;
};

static const struct named actions[] = {{"error", DG_FAULT_ERROR},
				       {"delay", DG_FAULT_DELAY},
				       {"reorder", DG_FAULT_REORDER},
				       {"lose", DG_FAULT_LOSE},
				       {NULL, 0}};
static const struct named statuses[] = {{"local_error", DG_LOCAL_ERROR},
					{"remote_access_error", DG_REMOTE_ACCESS_ERROR},
					{"peer_lost", DG_PEER_LOST},
					{"timed_out", DG_TIMED_OUT},
					{"flushed", DG_FLUSHED},
					{"io_failed", DG_IO_FAILED},
					{NULL, 0}};
static const struct named opcodes[] = {
	{"read", 1u << DG_READ}, {"write", 1u << DG_WRITE}, {"both", 3}, {NULL, 0}};

enum field { OPS, STATUS, EVERY, MIN_SIZE, MAX_SIZE, SKIP, COUNT, DELAY, PPM, SEED };
static const struct {
	const char *name;
	enum field field;
	const struct named *names; /* NULL: a number */
	const char *known; /* the names */
	uint64_t least, most, unit;
} keys[] = {
	{"ops", OPS, opcodes, "read write both", 0, 0, 1},
	{"status", STATUS, statuses,
	 "local_error remote_access_error peer_lost timed_out flushed io_failed", 0, 0, 1},
	{"every", EVERY, NULL, NULL, 1, UINT32_MAX, 1},
	{"min_size", MIN_SIZE, NULL, NULL, 0, UINT64_MAX, 1},
	{"max_size", MAX_SIZE, NULL, NULL, 0, UINT64_MAX, 1},
	{"skip", SKIP, NULL, NULL, 0, UINT64_MAX, 1},
	{"count", COUNT, NULL, NULL, 0, UINT64_MAX, 1},
	{"delay_ns", DELAY, NULL, NULL, 1, UINT64_MAX, 1},
	{"us", DELAY, NULL, NULL, 1, UINT64_MAX / 1000, 1000},
	{"ms", DELAY, NULL, NULL, 1, UINT64_MAX / 1000000, 1000000},
	{"ppm", PPM, NULL, NULL, 0, 1000000, 1},
	{"seed", SEED, NULL, NULL, 0, UINT32_MAX, 1},
};
#define N_KEYS (sizeof keys / sizeof keys[0])

static bool look_up(const struct named *names, const char *text, uint64_t *out)
{
	for (; names->name; names++)
		if (!strcmp(names->name, text)) {
			*out = names->value;
			return true;
		}
	return false;
}

static void set_field(dg_fault_rule *rule, enum field field, uint64_t value)
{
	switch (field) {
	case OPS:
		rule->ops = (uint32_t)value;
		break;
	case STATUS:
		rule->status = (int32_t)value;
		break;
	case EVERY:
		rule->every = (uint32_t)value;
		break;
	case MIN_SIZE:
		rule->min_size = value;
		break;
	case MAX_SIZE:
		rule->max_size = value;
		break;
	case SKIP:
		rule->skip = value;
		break;
	case COUNT:
		rule->count = value;
		break;
	case DELAY:
		rule->delay_ns = value;
		break;
	case PPM:
		rule->ppm = (uint32_t)value;
		break;
	case SEED:
		rule->seed = (uint32_t)value;
		break;
	}
}

#define BAD(...) (softdoca_log(DOCA_LOG_LEVEL_CRIT, "SOFTDOCA_FAULTS", __VA_ARGS__), false)

/* `given` collects the fields that the rule sets. */
static bool set_key(dg_fault_rule *rule, uint32_t *given, int number, char *word)
{
	uint64_t value;
	char *text = softdoca_split(word);
	if (!text)
		return BAD("rule %d: '%s' is not key=value", number, word);
	for (size_t i = 0; i < N_KEYS; i++) {
		if (strcmp(keys[i].name, word))
			continue;
		if (*given & 1u << keys[i].field)
			return BAD("rule %d: %s='%s' is repeated", number, word, text);
		*given |= 1u << keys[i].field;
		if (keys[i].names && !look_up(keys[i].names, text, &value))
			return BAD("rule %d: %s='%s' is invalid: the values are %s", number, word,
				   text, keys[i].known);
		if (!keys[i].names &&
		    (!softdoca_number(text, keys[i].most, &value) || value < keys[i].least))
			return BAD("rule %d: %s='%s' is not a number from %llu to %llu", number,
				   word, text, (unsigned long long)keys[i].least,
				   (unsigned long long)keys[i].most);
		set_field(rule, keys[i].field, value * keys[i].unit);
		return true;
	}
	return BAD("rule %d: key %s (value '%s') is unknown: the keys are ops status every "
		   "min_size max_size skip "
		   "count delay_ns us ms ppm seed",
		   number, word, text);
}

static bool read_rule(dg_fault_rule *rule, int number, char *text)
{
	char *rest = NULL, *word = strtok_r(text, " \t\n", &rest);
	uint64_t action;
	uint32_t given = 0;
	if (!word || !look_up(actions, word, &action))
		return BAD(
			"rule %d: action '%s' is unknown: the actions are error delay reorder lose",
			number, word ? word : "");
	*rule = (dg_fault_rule){.action = (uint32_t)action,
				.ops = 3,
				.status = DG_IO_FAILED,
				.every = 1,
				.max_size = UINT64_MAX,
				.ppm = 1000000};
	while ((word = strtok_r(NULL, " \t\n", &rest)))
		if (!set_key(rule, &given, number, word))
			return false;
	if (action == DG_FAULT_DELAY && !rule->delay_ns)
		return BAD("rule %d: delay needs a time: ms=, us= or delay_ns=", number);
	return true;
}

int softdoca_faults(dg_fault_rule rules[FAULTS_MAX])
{
	const char *given = getenv("SOFTDOCA_FAULTS");
	int n = 0;
	if (!given || !given[strspn(given, "; \t\n")])
		return 0;
	char *text = strdup(given), *rest = NULL;
	bool good = text != NULL;
	for (char *rule = good ? strtok_r(text, ";", &rest) : NULL; good && rule;
	     rule = strtok_r(NULL, ";", &rest)) {
		if (!rule[strspn(rule, " \t\n")])
			continue; /* after the last ; */
		if (n == FAULTS_MAX)
			good = BAD("rule %d: more than %d rules", n + 1, FAULTS_MAX);
		else
			good = read_rule(&rules[n], n + 1, rule);
		n++;
	}
	free(text);
	return good ? n : -1;
}
