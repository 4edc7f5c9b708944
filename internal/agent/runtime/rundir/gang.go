package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/job"
)

// GangStart lets the program of a rank start that waits for the other ranks of its run.
type GangStart struct {
	job.GangStart

	// Interface is the network interface that has the address of this rank; "" if that is unknown.
	Interface string `json:"interface,omitempty"`
}

// RequestStart lets the program of a rank start that waits for the other ranks. The caller makes one request at a time.
func RequestStart(dir string, start GangStart) error {
	if err := WriteJSON(filepath.Join(dir, StartFile), start, false); err != nil {
		return err
	}

	return Poke(filepath.Join(dir, ControlPipe), "s")
}

// ReadStart returns with what the program of a rank is to start, and whether it may.
func ReadStart(dir string) (GangStart, bool, error) {
	var start GangStart
	ok, err := ReadJSON(filepath.Join(dir, StartFile), &start)

	return start, ok, err
}

// HostFilePath returns the path of the host file, given the run directory; "" for a run on one node.
func (r *Record) HostFilePath(dir string) string {
	if len(r.Launch.Nodes) < 2 {
		return ""
	}

	return filepath.Join(r.Requests(dir), HostFile)
}

// WriteHostFile writes the host file of a rank as mpirun and DeepSpeed read it: a line for each node in rank order,
// with the number of its GPUs, at least 1.
func (r *Record) WriteHostFile(dir string, nodes []string) error {
	var text strings.Builder

	for i, node := range nodes {
		slots := len(r.DeviceNames()) // of a server that does not say those of the others
		if i < len(r.Launch.Slots) {
			slots = r.Launch.Slots[i]
		}

		fmt.Fprintf(&text, "%s slots=%d\n", node, max(1, slots))
	}

	// The program may run as another user, who must be able to read it.
	return os.WriteFile(r.HostFilePath(dir), []byte(text.String()), 0o644) //nolint:gosec // see above
}

// DistributedEnv returns the variables that distributed frameworks read. nodes are addresses in rank order; the first
// is the rendezvous. RANK, WORLD_SIZE and LOCAL_WORLD_SIZE count the programs that the yard starts, one on each node;
// torchrun and others that start several set them anew.
func (s Spec) DistributedEnv(nodes []string) map[string]string {
	first := "127.0.0.1"
	if len(nodes) > 0 && nodes[0] != "" {
		first = nodes[0]
	}

	n := strconv.Itoa(s.Rank)
	count := strconv.Itoa(max(1, len(nodes)))
	each := strconv.Itoa(max(1, len(s.DeviceNames())))
	at := strconv.Itoa(s.Launch.MasterPort)

	return map[string]string{
		"NODE_RANK": n, "RANK": n, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": "1", "NNODES": count, "NPROC_PER_NODE": each,
		"MASTER_ADDR": first, "MASTER_PORT": at,
		"PET_NNODES": count, "PET_NODE_RANK": n, "PET_NPROC_PER_NODE": each,
		"PET_MASTER_ADDR": first, "PET_MASTER_PORT": at,
	}
}

// InterfaceEnv returns the variables by which Gloo and NCCL choose the network. Without them Gloo takes the address
// that the host's name resolves to, and NCCL the first interface.
func InterfaceEnv(name string) map[string]string {
	if name == "" {
		return nil
	}

	return map[string]string{"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": "=" + name}
}
