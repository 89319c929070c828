// SPDX-License-Identifier: Apache-2.0
/* A side of comch_copy that exits without a message once it is connected, as if it were killed:
 * leaving_side client, or leaving_side server. */
#include "comch_check.h"

static int client(void)
{
	struct side c = {0};

	a_client(&c, "comch_copy");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL(&c, running(&c));
	return 0;
}

static int server(void)
{
	struct side s = {0};

	a_server(&s, "comch_copy");
	OK(doca_ctx_start(s.ctx));
	printf("The server is ready\n");
	fflush(stdout);
	UNTIL(&s, s.connects && s.received);
	return 0;
}

int main(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[1], "server") ? server() : client();
}
