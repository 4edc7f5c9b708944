package lines

// counter makes one running count of a step count that restarts, as programs do in every epoch.
type counter struct {
	offset  float64
	high    float64 // highest count since the last restart
	known   bool
	newer   bool // an epoch has begun since the last count
	current float64
	hasRun  bool // current is known
}

// epoch sets the epoch of the counts that follow.
func (c *counter) epoch(e float64) {
	if c.hasRun && e > c.current {
		c.newer = true
	}

	c.current, c.hasRun = e, true
}

// total returns a count as a step of the whole run. A count that has decreased has restarted if
// a new epoch was announced, or if it is close to 0; otherwise the program has gone back,
// as to a checkpoint, and repeats steps. lap is the length of one count, 0 if unknown.
func (c *counter) total(n, lap float64) float64 {
	if c.known && n < c.high {
		if c.newer || n <= c.high/10 || lap > 0 && c.high >= lap*0.99 {
			c.offset += max(c.high, lap)
			c.high = n
		}
	}

	c.newer = false
	c.high, c.known = max(c.high, n), true

	return c.offset + n
}

// newest returns the latest count as a step of the whole run.
func (c *counter) newest() float64 { return c.offset + c.high }

// epochs is what is known about the epochs of a run.
type epochs struct {
	current float64
	total   float64 // 0 if unknown
	known   bool
	zero    bool // counted from zero
}

// update records "epoch 3 of 90". Programs that count from 0 give the number of the last epoch as the total.
func (e *epochs) update(current, total float64) {
	if current == 0 {
		e.zero = true
	}

	e.current, e.known = current, true
	if total > 0 {
		e.total = total
		if e.zero {
			e.total++
		}
	}
}

// completed returns how many epochs are complete.
func (e *epochs) completed() float64 {
	if e.zero {
		return e.current
	}

	return max(e.current-1, 0)
}
