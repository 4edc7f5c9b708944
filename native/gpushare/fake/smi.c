// A fake nvidia-smi: what the agent reads of `nvidia-smi -q -x`, over the fake GPU of state.h.

#include "state.h"

int main(void)
{
	struct fake_gpu *gpu = fake_open();
	if (gpu == NULL) {
		fprintf(stderr, "FAKE_GPU names no GPU\n");
		return 1;
	}

	fake_lock(gpu);
	int busy = fake_advance(gpu);
	struct fake_gpu now = *gpu;
	fake_unlock(gpu);

	printf("<nvidia_smi_log><driver_version>580.0</driver_version><gpu id=\"00000000:01:00.0\">"
	       "<product_name>NVIDIA H200</product_name><uuid>GPU-fake</uuid>"
	       "<fb_memory_usage><total>%lu MiB</total><used>%lu MiB</used></fb_memory_usage>"
	       "<utilization><gpu_util>%d %%</gpu_util></utilization><processes>",
	       (unsigned long)(now.capacity >> 20), (unsigned long)(fake_used(&now) >> 20), busy ? 100 : 0);
	for (int i = 0; i < FAKE_PROCS; i++)
		if (now.proc[i].context)
			printf("<process_info><pid>%lu</pid><type>C</type><process_name>trainer</process_name>"
			       "<used_memory>%lu MiB</used_memory></process_info>",
			       (unsigned long)now.proc[i].pid,
			       (unsigned long)((now.proc[i].allocated + now.proc[i].context) >> 20));
	printf("</processes></gpu></nvidia_smi_log>\n");

	return 0;
}
