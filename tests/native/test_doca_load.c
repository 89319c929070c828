/* SPDX-License-Identifier: Apache-2.0 */
/* The providers doca and softdoca: which libraries they load, and which they refuse. */
#include <dlfcn.h>
#include <sys/stat.h>

#include "fixture.h"

static void softdoca_folder(char *out, size_t size)
{
	const char *folder = getenv("SOFTDOCA_LIB");

	if (!folder)
		SKIP("SOFTDOCA_LIB is not set");
	snprintf(out, size, "%s", folder);
}

/* Executes this test again with an environment variable that the loader reads at program start. */
static void again_with(const char *name, const char *value, const char *test)
{
	const char *emulator = getenv("DG_EMULATOR"); /* of a cross build, which the kernel cannot execute */
	char path[400] = "", command[900];

	if (getenv("DG_TEST_AGAIN"))
		return;
	setenv("DG_TEST_AGAIN", "1", 1);
	setenv(name, value, 1);
	CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	snprintf(command, sizeof(command), "exec %s '%s' %s", emulator ? emulator : "", path, test);
	execl("/bin/sh", "sh", "-c", command, NULL);
	CHECK(!"exec");
}

static int refused(const char *name, const char *says)
{
	dg_device *dev = NULL;
	int rc = dg_device_open(name, NULL, &dev);

	CHECK(rc < 0);
	CHECK(!dev);
	CHECK_SAYS(dg_last_error(), says);
	return rc;
}

TEST(without_softdoca_its_folder_is_named)
{
	setenv("SOFTDOCA_LIB", "/nonexistent/lib", 1);
	CHECK_EQ(refused("softdoca", "/nonexistent/lib"), -ENODEV);
	setenv("SOFTDOCA_LIB", "relative/lib", 1);
	CHECK_EQ(refused("softdoca", "absolute"), -ENODEV);
	unsetenv("SOFTDOCA_LIB"); /* there is none next to this program */
	CHECK_EQ(refused("softdoca", "_softdoca/lib"), -ENODEV);
	CHECK_EQ(dg_provider_probe("softdoca", false), -ENODEV);
	CHECK_EQ(dg_last_reason(-ENODEV), DG_REASON_SOFTDOCA);
}

TEST(without_doca_what_was_tried_and_what_to_install_is_named)
{
	void *real;

	again_with("LD_LIBRARY_PATH", "", __func__);
	real = dlopen("libdoca_common.so.3", RTLD_NOW);
	if (real)
		SKIP("DOCA is installed here");
	CHECK_EQ(refused("doca", "libdoca_common.so.3"), -ENODEV);
	CHECK_SAYS(dg_last_error(), "install DOCA");
	CHECK_EQ(dg_provider_probe("doca", true), -ENODEV);
	CHECK_SAYS(dg_last_error(), "install DOCA");
	CHECK_EQ(dg_last_reason(-ENODEV), DG_REASON_NO_DOCA);
}

TEST(softdoca_on_the_loaders_path_is_no_doca)
{
	char folder[400];
	dg_device *dev;

	softdoca_folder(folder, sizeof(folder));
	again_with("LD_LIBRARY_PATH", folder, __func__);
	CHECK_EQ(refused("doca", "softdoca"), -ENODEV);
	CHECK_SAYS(dg_last_error(), "Device('softdoca')");
	CHECK_EQ(dg_provider_probe("doca", true), -ENODEV);
	CHECK_SAYS(dg_last_error(), "Device('softdoca')");
	CHECK_EQ(dg_last_reason(-ENODEV), DG_REASON_NO_DOCA);
	/* The refusal leaves nothing loaded: softdoca can still be opened by its name. */
	CHECK_EQ(dg_device_open("softdoca", NULL, &dev), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(a_process_has_one_of_the_two)
{
	dg_device *dev = device_spinning(0);

	CHECK_EQ(refused("doca", "only one"), -ENODEV);
	CHECK_EQ(dg_provider_probe("doca", false), -ENODEV);
	CHECK_EQ(dg_provider_probe("softdoca", true), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* A FIFO in place of the library: the loader waits for a writer, as a driver may wait for its
 * device. */
TEST(a_probe_of_unresponsive_libraries_times_out)
{
	char folder[] = P_tmpdir "/dgkit-no-doca-XXXXXX", fifo[sizeof(folder) + 24];
	const char *made = getenv("DG_TEST_FOLDER");
	int rc;

	if (!made) {
		CHECK(mkdtemp(folder));
		setenv("DG_TEST_FOLDER", folder, 1);
		again_with("LD_LIBRARY_PATH", folder, __func__);
	}
	snprintf(fifo, sizeof(fifo), "%s/libdoca_common.so.3", made);
	CHECK_EQ(mkfifo(fifo, 0600), 0);
	rc = dg_provider_probe("doca", true);
	CHECK_EQ(unlink(fifo), 0);
	CHECK_EQ(rmdir(made), 0);
	CHECK_EQ(rc, -ENODEV);
	CHECK_SAYS(dg_last_error(), "did not answer");
	CHECK_EQ(waitpid(-1, NULL, 0), -1); /* the probing child process was reaped */
}

int main(int argc, char **argv)
{
	provider = "softdoca";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	return run_tests(argc, argv);
}
