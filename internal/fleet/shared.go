package fleet

import (
	"slices"
	"strings"
)

// SharedFolder declares a file system that nodes have in common, by the path at which it is mounted there.
type SharedFolder struct {
	Name string
	Path string
	Pool string // of the nodes; "" for all nodes
}

// Shared is what a node's agent found of a shared file system that is declared for it.
type Shared struct {
	Name   string `json:"name" maxLength:"63"`
	Path   string `json:"path" maxLength:"4096" doc:"where the node has it"`
	OK     bool   `json:"ok" doc:"whether it is the file system that the yard knows by this name"`
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"why it is not used"`
	// Known says that the node has found it before. The server sets it.
	Known bool `json:"known,omitempty" doc:"whether the node has found it before"`
}

// Sees reports whether the node has a shared file system.
func (inv *Inventory) Sees(name string) bool {
	return slices.ContainsFunc(inv.Shared, func(s Shared) bool { return s.Name == name && s.OK })
}

// SharedOf returns what the node found of a shared file system; the zero value if it has not looked for one of that
// name.
func (inv *Inventory) SharedOf(name string) Shared {
	at := slices.IndexFunc(inv.Shared, func(s Shared) bool { return s.Name == name })
	if at < 0 {
		return Shared{}
	}

	return inv.Shared[at]
}

// SharedFolders are all that an operator declares, in order.
type SharedFolders []SharedFolder

// For returns the shared file systems of the nodes of a pool. What is declared for the pool goes before what is
// declared for all nodes under the same name.
func (all SharedFolders) For(pool string) []SharedFolder {
	var list []SharedFolder

	for _, f := range all {
		at := slices.IndexFunc(list, func(o SharedFolder) bool { return o.Name == f.Name })

		switch {
		case f.Pool != "" && f.Pool != pool:
		case at < 0:
			list = append(list, f)
		case f.Pool != "":
			list[at] = f
		}
	}

	return list
}

// Offered returns the names of the shared file systems that nodes of an offer will see, as Offer.Shared has them.
func (all SharedFolders) Offered(o *Offer) string {
	var names []string
	for _, f := range all.For(o.Provider) {
		names = append(names, f.Name)
	}

	return strings.Join(names, ",")
}
