// SPDX-License-Identifier: Apache-2.0
/* A side of a sample that exits without a message once it is connected, as if it were killed:
 * leaving_side client, or leaving_side server, for comch_copy; with a third argument, for
 * comch_stream. */
#include "comch_check.h"

static int client(const char *name)
{
	struct side c = {0};

	a_client(&c, name);
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL(&c, running(&c));
	return 0;
}

static int server(const char *name)
{
	struct side s = {0};

	a_server(&s, name);
	OK(doca_ctx_start(s.ctx));
	printf("The server is ready\n");
	fflush(stdout);
	UNTIL(&s, s.connects && (s.received || strcmp(name, "comch_copy")));
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? "comch_stream" : "comch_copy";

	return argc > 1 && !strcmp(argv[1], "server") ? server(name) : client(name);
}
