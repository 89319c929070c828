// SPDX-License-Identifier: Apache-2.0
/* Memory behind a dma-buf. */
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

void dmabuf_drop(struct doca_mmap *m)
{
	if (m->window)
		munmap(m->window, m->mapped);
	if (m->dmabuf_fd >= 0)
		close(m->dmabuf_fd);
	if (m->gpu.fd >= 0)
		close(m->gpu.fd);
	m->window = NULL;
	m->dmabuf_fd = m->gpu.fd = -1;
}
