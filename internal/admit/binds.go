package admit

// Any reports whether there is a limit at all.
func (b *Books) Any() bool { return len(b.limits) > 0 || b.eachUser != nil || b.eachProject != nil }

// Binds reports whether a limit holds for who pays for something.
func (b *Books) Binds(w Who) bool {
	if w.Owner != "" {
		if b.users[w.Owner].bound(b.eachUser) != nil {
			return true
		}
	}
	return w.Project != "" && b.projects[w.Project].bound(b.eachProject) != nil
}
