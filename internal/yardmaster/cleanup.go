package yardmaster

// ActorYard is the actor of what no person or node caused.
const ActorYard = theYard

// RecordCleanup records that the server removed blobs that nobody needs.
type RecordCleanup struct{ Summary string }

func (m RecordCleanup) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.event(Event{Kind: "yard.cleaned", Actor: theYard, Reason: m.Summary})

	return nil, nil
}

// RestoredManifests lists the digests of the manifests that runs are to restore.
func (y *Yard) RestoredManifests() []string {
	var list []string

	for name, r := range y.runs {
		for rank := range r.Ranks {
			o := y.orders.Get(name, rank)
			if o == nil || o.Launch.Restore == nil {
				continue
			}

			for _, p := range o.Launch.Restore.Parts {
				if p.Manifest != "" {
					list = append(list, p.Manifest)
				}
			}
		}
	}

	return list
}
