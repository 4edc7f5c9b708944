package provision

// Slowest returns the TFLOPS that the slowest node on which the need fits would use,
// 0 if that is known of none.
func (f *Fit) Slowest() float64 {
	least := 0.0
	for i := range f.hosts {
		if s := f.hosts[i].speed; s > 0 && (least == 0 || s < least) {
			least = s
		}
	}

	return least
}
