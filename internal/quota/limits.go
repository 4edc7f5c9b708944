package quota

// Any reports whether there is any quota.
func (t *Tracker) Any() bool { return len(t.quotas) > 0 || t.eachUser != nil || t.eachProject != nil }

// Binds reports whether a quota applies to a payer.
func (t *Tracker) Binds(w Payer) bool {
	if w.Owner != "" {
		if t.users[w.Owner].limitOr(t.eachUser) != nil {
			return true
		}
	}

	return w.Project != "" && t.projects[w.Project].limitOr(t.eachProject) != nil
}
