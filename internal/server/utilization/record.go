package utilization

import (
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// maxPoints bounds the course of a rank. When it is full every two points become one.
const maxPoints = 120

// maxCourses bounds of how many ranks of a run the course is kept; of the others the sums are.
const maxCourses = 8

// Of earlier runs the course of the first rank is kept, of so many of them and in so many points.
const (
	maxEarlier       = 10
	maxEarlierPoints = 40
)

// runRecord is what is known of the newest run of a job, and the courses of those before it.
type runRecord struct {
	Run     id.Run              `json:"run"`
	Ranks   map[int]*rankRecord `json:"ranks"`
	Ended   bool                `json:"ended,omitempty"`
	Earlier []runCourse         `json:"earlier,omitempty"` // oldest first
	// Notes are those that wait to be sent; only what is stored has them.
	Notes []yardmaster.NoteShare `json:"notes,omitempty"`
}

// runCourse is the course of a run that another one has followed.
type runCourse struct {
	Run    id.Run  `json:"run"`
	Points []point `json:"points"`
}

// rankRecord is what one rank has used.
type rankRecord struct {
	Node    id.Node   `json:"node"`
	First   time.Time `json:"first"`
	Last    job.Use   `json:"last"`
	Samples int       `json:"samples"`
	// FirstCPU is how many CPU seconds it had used by First.
	FirstCPU float64 `json:"first_cpu,omitempty"`
	// Memory and GPUBusy are integrals over the time, from which the means are made.
	Memory    float64 `json:"memory_seconds"`
	Busy      float64 `json:"busy_seconds"`
	CPUPeak   float64 `json:"cpu_peak"`
	GPUMemory int64   `json:"gpu_memory_peak"`
	BusyPeak  float64 `json:"busy_peak"`
	// IdleGPUs counts, by GPU, the samples in which it did nothing.
	IdleGPUs map[int]int `json:"idle_gpus,omitempty"`
	// Rates are those between the two newest measurements.
	Rates rates `json:"rates,omitzero"`
	// Share is what it gets of a GPU that it shares; nil if it does not, or if that is not measured.
	Share  *shareRecord `json:"share,omitempty"`
	Width  int          `json:"width"` // samples in a point of the course
	Points []point      `json:"points,omitempty"`
	Open   point        `json:"open,omitzero"` // the point that is being filled
}

// rates are bytes a second.
type rates struct {
	Read     float64 `json:"read,omitempty"`
	Written  float64 `json:"written,omitempty"`
	Received float64 `json:"received,omitempty"`
	Sent     float64 `json:"sent,omitempty"`
}

// ratesBetween returns the rates between two measurements.
func ratesBetween(before, now *job.Use, seconds float64) rates {
	rate := func(from, to int64) float64 { return float64(max(to-from, 0)) / seconds }

	return rates{
		Read: rate(before.Read, now.Read), Written: rate(before.Written, now.Written),
		Received: rate(before.Received, now.Received), Sent: rate(before.Sent, now.Sent),
	}
}

// point is a piece of the course: the mean of a number of samples.
type point struct {
	At      time.Time `json:"at"` // of the last sample
	Samples int       `json:"n"`
	CPUs    float64   `json:"cpus"`
	Memory  float64   `json:"memory"`
	Busy    float64   `json:"busy"`
	// GPUMemory is the most on one GPU; 0 where it was not recorded.
	GPUMemory float64 `json:"gpu_memory,omitempty"`
}

// follow begins the record of another run. Of the run before, its course is kept.
func (r *runRecord) follow(next id.Run) {
	earlier := r.Earlier

	if first := r.Ranks[0]; first != nil {
		if points := thin(first.course(), maxEarlierPoints); len(points) > 0 {
			earlier = append(earlier, runCourse{Run: r.Run, Points: points})
		}
	}

	if extra := len(earlier) - maxEarlier; extra > 0 {
		earlier = slices.Delete(earlier, 0, extra)
	}

	*r = runRecord{Run: next, Ranks: map[int]*rankRecord{}, Earlier: earlier}
}

// course is all points of a rank, with the one that is being filled.
func (r *rankRecord) course() []point {
	points := slices.Clone(r.Points)
	if r.Open.Samples > 0 {
		points = append(points, r.Open)
	}

	return points
}

// thin makes at most so many points of a course: neighbours become one.
func thin(points []point, most int) []point {
	width := (len(points) + most - 1) / most
	if width <= 1 {
		return points
	}

	var out []point

	for piece := range slices.Chunk(points, width) {
		one := piece[0]
		for _, p := range piece[1:] {
			one = merge(one, p)
		}

		out = append(out, one)
	}

	return out
}

// add adds a measurement. One that is not newer than the last changes nothing but what the end of a rank says.
func (r *rankRecord) add(u *job.Use, ended, course bool) {
	if r.Samples == 0 {
		r.First, r.FirstCPU, r.Width = u.At, u.CPUSeconds, 1
	}

	elapsed := u.At.Sub(r.Last.At).Seconds()
	if r.Samples > 0 && elapsed <= 0 {
		return
	}

	if ended {
		r.end(u)
		return
	}

	one := point{At: u.At, Samples: 1, Memory: float64(u.Memory), Busy: busy(u), GPUMemory: gpuMemory(u)}
	if r.Samples > 0 {
		one.CPUs = max(u.CPUSeconds-r.Last.CPUSeconds, 0) / elapsed
		r.Memory += float64(u.Memory) * elapsed
		r.Busy += one.Busy * elapsed
		r.CPUPeak = max(r.CPUPeak, one.CPUs)
		r.Rates = ratesBetween(&r.Last, u, elapsed)
		r.addGPUs(u.GPUs, one.Busy)
	}

	peak := max(r.Last.MemoryPeak, u.MemoryPeak, u.Memory)
	r.Samples++
	r.Last = *u
	r.Last.MemoryPeak = peak

	if course && r.Samples > 1 {
		r.extend(one)
	}
}

// addGPUs adds how busy the GPUs are. What is said of them with the first measurement of a rank may be of the rank
// before it.
func (r *rankRecord) addGPUs(gpus []job.GPUUse, busy float64) {
	r.BusyPeak = max(r.BusyPeak, busy)

	for _, g := range gpus {
		r.GPUMemory = max(r.GPUMemory, g.Memory)
		if g.Busy == 0 {
			if r.IdleGPUs == nil {
				r.IdleGPUs = map[int]int{}
			}

			r.IdleGPUs[g.Index]++
		}
	}
}

// end takes in what is known of a rank that has ended: sums that are complete, and nothing about the moment.
func (r *rankRecord) end(u *job.Use) {
	first := r.Samples == 0
	last := r.Last
	r.Last.At = u.At
	r.Last.CPUSeconds = max(last.CPUSeconds, u.CPUSeconds)
	r.Last.MemoryPeak = max(last.MemoryPeak, u.MemoryPeak)
	r.Last.Read, r.Last.Written = max(last.Read, u.Read), max(last.Written, u.Written)
	r.Last.Memory, r.Last.GPUs = 0, nil

	if first {
		r.Last.Unmeasured = u.Unmeasured
	}
}

// busy is how busy the GPUs of a rank are on average.
func busy(u *job.Use) float64 {
	if len(u.GPUs) == 0 {
		return 0
	}

	sum := 0.0
	for _, g := range u.GPUs {
		sum += g.Busy
	}

	return sum / float64(len(u.GPUs))
}

// gpuMemory is the most in use on one GPU of a rank.
func gpuMemory(u *job.Use) float64 {
	most := int64(0)
	for _, g := range u.GPUs {
		most = max(most, g.Memory)
	}

	return float64(most)
}

// extend adds a sample to the course.
func (r *rankRecord) extend(one point) {
	r.Open = merge(r.Open, one)
	if r.Open.Samples < r.Width {
		return
	}

	r.Points = append(r.Points, r.Open)
	r.Open = point{}

	if len(r.Points) < maxPoints {
		return
	}

	for i := range len(r.Points) / 2 {
		r.Points[i] = merge(r.Points[2*i], r.Points[2*i+1])
	}

	r.Points = r.Points[:len(r.Points)/2]
	r.Width *= 2
}

// merge makes one point of two that follow each other.
func merge(a, b point) point {
	n, m := float64(a.Samples), float64(b.Samples)
	mean := func(x, y float64) float64 { return (x*n + y*m) / (n + m) }

	return point{
		At: b.At, Samples: a.Samples + b.Samples,
		CPUs: mean(a.CPUs, b.CPUs), Memory: mean(a.Memory, b.Memory), Busy: mean(a.Busy, b.Busy),
		GPUMemory: mean(a.GPUMemory, b.GPUMemory),
	}
}
