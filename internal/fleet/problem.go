package fleet

// Problem is what keeps new jobs off a node although its agent reports. Its runs continue.
type Problem struct {
	Cause  string `json:"cause" doc:"stable, for programs: no_space"`
	Reason string `json:"reason"`
}

// Open reports whether new jobs may be placed on a node: its agent reports, it is not cordoned and has no problem.
func (n *Node) Open() bool {
	return n.State == Ready && !n.Cordoned && n.Inventory.Problem == nil
}
