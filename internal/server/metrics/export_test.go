package metrics

// Hold is the part of a scrape during which the loop may have to wait.
func (b *Collector) Hold() { b.hold() }

// How many shares there are.
const (
	AccountCount = accountCount
	ClassCount   = classCount
)
