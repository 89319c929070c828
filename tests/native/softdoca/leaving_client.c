// SPDX-License-Identifier: Apache-2.0
/* A client of the sample comch_copy that connects and leaves without a message, as one that is killed. */
#include "comch_check.h"

int main(void)
{
	struct side c = {0};

	a_client(&c, "comch_copy");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL(&c, running(&c));
	return 0;
}
