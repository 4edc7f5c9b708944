package fleet

import (
	"math/bits"
	"slices"
	"strings"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/share"
)

// MaxGPUs is the greatest number of GPUs of one node: a set of GPUs is one uint64.
const MaxGPUs = 64

// Need is what a job asks of the nodes it runs on. Jobs with equal needs are
// interchangeable to a policy, so a Need is comparable and serves as their key.
type Need struct {
	Nodes, MaxNodes int // number of nodes, each with all of the below
	GPUs, MaxGPUs   int
	Kinds           string // GPU kinds, any of, joined by '|'; "" means any
	GPUMin, GPUMax  job.Bytes
	GPUOver         job.Bytes // GPUs with more memory than this
	// Share is the part of its one GPU that is enough for the job, and Cap how much memory of it; 0 for a whole GPU, and
	// for as much memory as the share. It runs on nodes that divide their GPUs.
	Share float64   `json:",omitempty"`
	Cap   job.Bytes `json:",omitempty"`
	// Class and Limit are how it is served beside others, as in the job file.
	Class     job.ShareClass `json:",omitempty"`
	Limit     float64        `json:",omitempty"`
	MPS       bool           `json:",omitempty"` // it shares its GPU through NVIDIA MPS, on nodes that have it
	CPUs      job.CPUs
	Memory    job.Bytes
	Place     job.Place
	Avoid     string // nodes, joined by '|', each between bars: "|a|b|"
	Snapshot  bool   // nodes that can save the program and restore it
	Shared    string // nodes that see this shared file system; "" for any
	Secrets   bool   `json:",omitempty"` // nodes whose agents pass secrets on
	Container bool   `json:",omitempty"` // nodes that run jobs in containers
	SameGPU   bool   `json:",omitempty"` // nodes with one GPU model, see MostAlike
	// Builder is what nodes need to make the job's Python environment, and Python the version of that; "" for any.
	Builder job.Builder `json:",omitempty"`
	Python  string      `json:",omitempty"`
	// Pools, Only and Except are what the job file says about nodes by their names, in the form of Avoid: only those of
	// these pools, only these, none of these; "" for any.
	Pools  string `json:",omitempty"`
	Only   string `json:",omitempty"`
	Except string `json:",omitempty"`
	Labels string `json:",omitempty"` // only nodes that have all of these, likewise
	// Image is what the snapshot needs from which the program continues, or would continue if it were moved.
	Image Image `json:",omitzero"`
	// Owner keeps the job off nodes that are dedicated to another user; "" if the yard has no node for one user at a time.
	Owner id.User `json:",omitempty"`
	// Length keeps the job off nodes that are reserved for another user before it would have ended, as RunLength rounds
	// it; 0 if no reservation begins soon, or if it may begin earlier: how long the job runs is unknown, or it resumes.
	Length job.Duration `json:",omitempty"`
}

// SameResources reports whether another need asks for the same of a node that is provisioned for it. Such a node is
// empty, so whose the job is makes no difference.
func (n Need) SameResources(o Need) bool {
	n.Owner, o.Owner = "", ""
	n.Length, o.Length = 0, 0

	return n == o
}

// NeedOf returns the need of a job, raised to its floor after it ran out of memory.
func NeedOf(s *job.Spec, floor job.Floor, avoid []id.Node) Need {
	r := &s.Resources
	n := Need{
		Nodes: max(r.Nodes.Min, 1), MaxNodes: max(r.Nodes.Max, r.Nodes.Min, 1),
		GPUs: r.GPUs.Min, MaxGPUs: max(r.GPUs.Max, r.GPUs.Min),
		GPUMin: r.GPUMemory.Min, GPUMax: r.GPUMemory.Max, GPUOver: floor.GPUMemory,
		CPUs: r.CPUs, Memory: max(r.Memory, floor.Memory), Place: s.Place,
	}

	if r.GPUs.Min > 0 && r.GPUs.Max == 0 {
		n.MaxGPUs = MaxGPUs
	}

	if r.GPUShare > 0 && r.GPUShare < 1 && n.MaxGPUs == 1 && n.MaxNodes == 1 {
		n.Share, n.Cap, n.Class, n.Limit = r.GPUShare, r.GPUMemory.Min, r.ShareClass, r.ShareLimit
		n.MPS = r.ShareMPS

		// Where it ran out of its part of the memory, half as much again may be enough on the same GPU.
		if floor.GPUMemory > 0 {
			n.Cap, n.GPUOver = max(n.Cap, floor.GPUMemory+floor.GPUMemory/2), 0
		}
	}

	if r.Nodes.Min > 0 && r.Nodes.Max == 0 {
		n.MaxNodes = 1 << 10
	}

	if len(r.GPU) > 0 {
		kinds := make([]string, len(r.GPU))
		for i, k := range r.GPU {
			kinds[i] = k.String()
		}

		slices.Sort(kinds)
		n.Kinds = strings.Join(slices.Compact(kinds), "|")
	}

	n.Snapshot = s.Checkpoint != nil && s.Checkpoint.Snapshot
	n.Secrets = len(s.Secrets) > 0 || s.RegistryAuth != ""
	n.Container = s.Image != ""
	n.SameGPU = r.SameGPU

	n.Builder = s.Python.Builder()
	if s.Python != nil {
		n.Python = s.Python.Version
	}

	n.Avoid = barred(avoid)
	n.Pools, n.Only, n.Except = barred(s.Pools), barred(s.Nodes), barred(s.Avoid)
	n.Labels = barred(s.Labels)

	return n
}

// barred writes names in order, each between bars: "|a|b|"; "" for none.
func barred[T ~string](list []T) string {
	if len(list) == 0 {
		return ""
	}

	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}

	slices.Sort(names)

	return "|" + strings.Join(slices.Compact(names), "|") + "|"
}

// has reports whether a name is among those between bars.
func has(list, name string) bool { return strings.Contains(list, "|"+name+"|") }

// Names returns the names of a list between bars, as Avoid, Pools, Only and Except are.
func Names(list string) []string {
	if list == "" {
		return nil
	}

	return strings.Split(strings.Trim(list, "|"), "|")
}

// Pinned reports whether only some nodes of the yard are allowed by name or label, so that none can be provisioned
// for the job.
func (n *Need) Pinned() bool { return n.Pools != "" || n.Only != "" || n.Labels != "" }

// Named reports whether the job file says anything about nodes by their names.
func (n *Need) Named() bool { return n.Pinned() || n.Except != "" }

// Particular reports whether nodes with the same hardware may differ in whether they meet the need.
func (n *Need) Particular() bool {
	return n.Avoid != "" || n.Snapshot || n.Shared != "" || n.Owner != "" || n.Secrets || n.Container ||
		n.Builder != job.BuilderNone || n.Share > 0 || n.Named()
}

// Whole returns the need of a job that gets a whole GPU although a part is enough for it. Any node will do then.
func (n Need) Whole() Need {
	n.Share, n.Cap, n.Class, n.Limit, n.MPS = 0, 0, "", 0, false

	return n
}

// Cut returns what the job gets of a GPU if it gets such a part of one.
func (n *Need) Cut(part float64) share.Cut {
	return share.Cut{Owner: n.Owner, Share: part, Cap: n.Cap, Class: n.Class, Limit: n.Limit, MPS: n.MPS}
}

// MostAlike returns how many of the rooms at most could run the ranks of a job together: those with one kind of
// GPU if it asks for that, and else all of them. Nodes with GPUs of several kinds are alike none.
func (n *Need) MostAlike(rooms []*Room) int {
	if !n.SameGPU {
		return len(rooms)
	}

	most, kinds := min(len(rooms), 1), map[int32]int{}
	for _, r := range rooms {
		if r.Kind >= 0 {
			kinds[r.Kind]++
			most = max(most, kinds[r.Kind])
		}
	}

	return most
}

// Matcher tests rooms against one need. It remembers the answer for each kind
// of GPU, because comparing names is slow and kinds are few.
type Matcher struct {
	Need    Need
	kinds   []job.GPUKind
	matches []int8 // by kind of GPU: 0 not tested yet, 1 matches, -1 does not
}

// NewMatcher returns a matcher for a need.
func NewMatcher(n Need) *Matcher {
	m := &Matcher{Need: n}
	if n.Kinds != "" {
		for k := range strings.SplitSeq(n.Kinds, "|") {
			var kind job.GPUKind

			// Kinds are validated at submission; one that cannot be parsed here matches by its text.
			if kind.UnmarshalText([]byte(k)) != nil {
				kind = job.GPUKind{Model: k}
			}

			m.kinds = append(m.kinds, kind)
		}
	}

	return m
}

// Eligible reports whether the node could run a rank if it were open and what its runs hold were free. A node that is
// dedicated to another user could not: its runs are not preempted for somebody else.
func (m *Matcher) Eligible(r *Room) bool {
	n := &m.Need
	inv := &r.Node.Inventory

	return r.Node.Class.Allows(n.Place) && inv.CPUs >= n.CPUs && inv.Memory >= n.Memory &&
		bits.OnesCount64(m.gpus(r, r.Sound)) >= n.GPUs && !m.barred(r)
}

// Fits reports whether a rank fits now, and which free GPUs it could have.
func (m *Matcher) Fits(r *Room) (gpus uint64, ok bool) {
	n := &m.Need
	if !r.Open || r.CPUs < n.CPUs || r.Memory < n.Memory || !r.Node.Class.Allows(n.Place) {
		return 0, false
	}

	if n.MaxGPUs > 0 {
		gpus = m.gpus(r, r.Free)
		if bits.OnesCount64(gpus) < n.GPUs {
			return 0, false
		}
	}

	return gpus, !m.barred(r)
}

// FitsPart reports of which GPUs a rank could get a part: shared ones on which it may stand beside the others, and
// free ones.
func (m *Matcher) FitsPart(r *Room, c *share.Cut) (shared, free uint64, ok bool) {
	n := &m.Need
	if !r.Open || r.CPUs < n.CPUs || r.Memory < n.Memory || !r.Node.Class.Allows(n.Place) || n.GPUs > 1 || n.Nodes > 1 ||
		r.Node.Inventory.Shares == "" || m.barred(r) {
		return 0, 0, false
	}

	for i := range r.Parts {
		if g := r.Shared(i); g.Fits(c) == share.NoObstacle {
			shared |= r.Parts[i].GPU
		}
	}

	shared, free = m.gpus(r, shared&r.Sound), m.gpus(r, r.Free)

	for set := free; set != 0; set &= set - 1 {
		if g := (share.GPU{Memory: r.MemoryOf(set & -set)}); g.Fits(c) != share.NoObstacle {
			free &^= set & -set
		}
	}

	return shared, free, shared|free != 0
}

// Shared returns the i-th of the GPUs that are shared, with who shares it.
func (r *Room) Shared(i int) share.GPU {
	return share.GPU{Memory: r.MemoryOf(r.Parts[i].GPU), Cuts: r.Parts[i].Cuts}
}

// MemoryOf returns the memory of a GPU of the node, 0 if that is unknown.
func (r *Room) MemoryOf(gpu uint64) job.Bytes {
	if g := r.Node.Inventory.GPU(bits.TrailingZeros64(gpu)); g != nil {
		return g.Memory
	}

	return 0
}

// MatchingGPUs returns the node's working GPUs that match the need, free or not.
func (m *Matcher) MatchingGPUs(r *Room) uint64 { return m.gpus(r, r.Sound) }

// barred reports whether the node is out of the question, whatever room it has.
func (m *Matcher) barred(r *Room) bool {
	if m.Need.Snapshot && !r.Node.Inventory.Saves(m.Need.MaxGPUs > 0).OK {
		return true
	}
	if m.Need.Share > 0 && r.Node.Inventory.Shares == "" || m.Need.MPS && !r.Node.Inventory.MPS {
		return true
	}
	if m.Need.Secrets && !r.Node.Inventory.Secrets {
		return true
	}
	if m.Need.Container && !r.Node.Inventory.Contains(m.Need.MaxNodes > 1).OK {
		return true
	}
	if m.Need.Builder != job.BuilderNone && !r.Node.Inventory.Builds(m.Need.Builder, m.Need.Python).OK {
		return true
	}
	if m.Need.Image != (Image{}) && m.Need.Image.Misfit(&r.Node.Inventory) != "" {
		return true
	}

	if o := m.Need.Owner; o != "" && (r.DedicatedToOther(o) || r.ClosesBefore(m.Need.Length, o)) {
		return true
	}
	if m.Need.Shared != "" && !r.Node.Inventory.Sees(m.Need.Shared) {
		return true
	}

	if m.Need.Named() && m.excluded(r.Node) {
		return true
	}

	return m.Need.Avoid != "" && has(m.Need.Avoid, string(r.Node.ID))
}

// excluded reports whether the job file leaves a node out.
func (m *Matcher) excluded(n *Node) bool {
	need := &m.Need

	return need.Pools != "" && !has(need.Pools, n.Pool) || need.Only != "" && !has(need.Only, string(n.ID)) ||
		need.Except != "" && has(need.Except, string(n.ID)) || need.Labels != "" && n.Inventory.lacks(need.Labels)
}

// gpus returns those of a set of GPUs that match the need.
func (m *Matcher) gpus(r *Room, set uint64) uint64 {
	if m.Need.MaxGPUs == 0 || set == 0 {
		return 0
	}

	if r.Kind >= 0 {
		for int(r.Kind) >= len(m.matches) {
			m.matches = append(m.matches, 0)
		}

		if m.matches[r.Kind] == 0 {
			m.matches[r.Kind] = -1
			if m.wants(&r.Node.Inventory.GPUs[0]) {
				m.matches[r.Kind] = 1
			}
		}

		if m.matches[r.Kind] < 0 {
			return 0
		}

		return set
	}

	var matching uint64
	for i := range r.Node.Inventory.GPUs {
		if g := &r.Node.Inventory.GPUs[i]; g.Index >= 0 && g.Index < MaxGPUs && m.wants(g) {
			matching |= 1 << g.Index
		}
	}

	return set & matching
}

// wants reports whether a GPU matches the need. GPUs of one nominal size report a little more
// or less, so sizes are compared within 7 %.
func (m *Matcher) wants(g *GPU) bool {
	n := &m.Need
	if g.Memory < n.GPUMin-n.GPUMin/100*7 || n.GPUMax > 0 && g.Memory > n.GPUMax+n.GPUMax/100*7 ||
		n.GPUOver > 0 && g.Memory <= n.GPUOver+n.GPUOver/100*7 || n.Image.GPU != "" && g.Model != n.Image.GPU {
		return false
	}

	if n.Share > 0 {
		// Less is left for jobs than the GPU has, so one with just as much memory as the job may have is too small.
		if gpu, cut := (share.GPU{Memory: g.Memory}), n.Cut(n.Share); gpu.Fits(&cut) == share.NoMemory {
			return false
		}
	}

	return len(m.kinds) == 0 ||
		slices.ContainsFunc(m.kinds, func(k job.GPUKind) bool { return k.Matches(g.Model, g.Memory) })
}

// LowestGPUs returns the n GPUs of a set with the lowest indices.
func LowestGPUs(set uint64, n int) uint64 {
	var lowest uint64
	for ; n > 0 && set != 0; n-- {
		low := set & -set
		lowest |= low
		set &^= low
	}

	return lowest
}

// Indices lists the GPUs of a set.
func Indices(set uint64) []int {
	if set == 0 {
		return nil
	}

	list := make([]int, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros64(set))
	}

	return list
}

// Mask returns the set of these GPUs. Invalid indices are left out.
func Mask(indices []int) uint64 {
	var set uint64
	for _, i := range indices {
		if i >= 0 && i < MaxGPUs {
			set |= 1 << i
		}
	}

	return set
}
