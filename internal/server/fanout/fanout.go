// Package fanout hands one live feed to many followers.
//
// What a feed publishes was encoded once. It is kept in memory until all followers have taken it, and no longer than
// there is room: a follower who falls behind is told so, and nobody waits for one. The server's feeds of output use
// it; what is in an item and who may see it is not known here.
package fanout

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// ErrBehind says that what a follower would get next is not in memory any more.
var ErrBehind = errors.New("the follower has fallen behind")

// Item is a piece of a feed. P is how a place in the feed is written down.
type Item[P any] struct {
	Data  []byte // as it is sent; it is shared, so nobody changes it
	Lines int    // how many lines it has
	After P      // the place after it
	Joint string // names the place after it; "" if nobody can join there
}

// Hub knows the feeds that are followed now. It is safe for concurrent use.
type Hub[K comparable, P any] struct {
	most, total int

	mu      sync.Mutex // of the hub, its feeds and their followers
	feeds   map[K]*Feed[K, P]
	skipped int64
}

// least is how many bytes a feed may keep however many feeds there are: about what is published at once.
const least = 128 << 10

// NewHub returns a hub that keeps so many bytes for each feed, and for all of them together as long as there are not
// very many.
func NewHub[K comparable, P any](most, total int) *Hub[K, P] {
	return &Hub[K, P]{most: most, total: total, feeds: map[K]*Feed[K, P]{}}
}

// room is how many bytes a feed may keep now. It is called with the lock.
func (h *Hub[K, P]) room() int {
	return max(least, min(h.most, h.total/max(len(h.feeds), 1)))
}

// Stats is what a hub is doing.
type Stats struct {
	Followers int   // of all feeds
	Bytes     int   // kept for them
	Skipped   int64 // lines that they were not given, since the hub is there
}

// Stats returns what the hub is doing.
func (h *Hub[K, P]) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()

	out := Stats{Skipped: h.skipped}
	for _, f := range h.feeds {
		out.Followers += len(f.followers)
		out.Bytes += f.bytes
	}

	return out
}

// Newest returns the last place at which a feed can be joined, and a channel that is closed when the feed goes on. It
// is false if nobody follows this feed.
func (h *Hub[K, P]) Newest(key K) (at P, changed <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	f, ok := h.feeds[key]
	if !ok {
		return at, nil, false
	}

	return f.newest.at, f.changed, true
}

// Join adds a follower to a feed who has everything up to a place of it. If nobody follows the feed, it begins there:
// run publishes it, until it returns or the last follower leaves. Join is false if the feed has no such joint in
// memory.
func (h *Hub[K, P]) Join(
	ctx context.Context,
	key K,
	joint string,
	at P,
	run func(context.Context, *Feed[K, P]) error,
) (*Follower[K, P], bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	f, ok := h.feeds[key]
	if !ok {
		f = h.open(ctx, key, place[P]{joint, at}, run)
	}

	m := &Follower[K, P]{feed: f}
	if !m.enter(joint) {
		return nil, false
	}

	f.followers[m] = struct{}{}

	return m, true
}

// open begins a feed. It is called with the lock.
func (h *Hub[K, P]) open(
	ctx context.Context,
	key K,
	begin place[P],
	run func(context.Context, *Feed[K, P]) error,
) *Feed[K, P] {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the first follower may be the first to leave
	f := &Feed[K, P]{
		hub: h, key: key, begin: begin, newest: begin, end: begin.at, followers: map[*Follower[K, P]]struct{}{},
		changed: make(chan struct{}), taken: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	h.feeds[key] = f

	go func() {
		defer close(f.done)
		defer cancel()

		f.finish(run(ctx, f))
	}()

	return f
}

// place is a place in a feed at which it can be joined.
type place[P any] struct {
	joint string
	at    P
}

// entry is an item that is kept, and how many lines the feed has had with it.
type entry[P any] struct {
	Item[P]

	lines int64
}

// Feed is published by one and followed by many.
type Feed[K comparable, P any] struct {
	hub       *Hub[K, P]
	key       K
	begin     place[P] // before the items
	items     []entry[P]
	first     uint64   // number of the first item
	newest    place[P] // the last one at which the feed can be joined
	end       P        // after the items
	lines     int64    // of all that was published
	bytes     int      // of the items
	followers map[*Follower[K, P]]struct{}
	changed   chan struct{} // closed when the feed goes on, or has ended
	taken     chan struct{} // holds a value after a follower has taken something
	over      bool
	err       error // why it ended

	cancel context.CancelFunc
	done   chan struct{} // closed when nothing is published any more
}

// Publish hands an item to all followers.
func (f *Feed[K, P]) Publish(item Item[P]) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	f.add(item)
	f.wake()
}

// End hands the last item to all followers. Whoever sees that it is there sees that the feed has ended, too, so that
// nobody skips to a place after it.
func (f *Feed[K, P]) End(item Item[P]) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	f.add(item)
	f.over = true
	f.remove()
	f.wake()
}

// add keeps an item for all followers. It is called with the lock.
func (f *Feed[K, P]) add(item Item[P]) {
	f.lines += int64(item.Lines)
	f.bytes += len(item.Data)
	f.items = append(f.items, entry[P]{item, f.lines})
	f.end = item.After

	if item.Joint != "" {
		f.newest = place[P]{item.Joint, item.After}
	}

	f.trim()
}

// Pace lets the followers take what was published while there is much of it, but waits no longer than d.
func (f *Feed[K, P]) Pace(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	for f.crowded() && clock.Wait(ctx, d, f.taken) == clock.Woken {
		continue
	}
}

// crowded reports whether more than half of the room is taken.
func (f *Feed[K, P]) crowded() bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	f.trim()

	return f.bytes > f.hub.room()/2
}

// trim drops what all followers have, and the oldest items if there is no room for them; the newest stays. It is called
// with the lock.
func (f *Feed[K, P]) trim() {
	needed := f.first + uint64(len(f.items))
	for m := range f.followers {
		m.behind = m.behind || m.next < f.first
		if !m.behind {
			needed = min(needed, m.next)
		}
	}

	n, room := 0, f.hub.room()
	for ; n < len(f.items); n++ {
		item := &f.items[n]
		if number := f.first + uint64(n); number >= needed && (f.bytes <= room || n == len(f.items)-1) {
			break
		}

		f.bytes -= len(item.Data)
		f.begin = place[P]{item.Joint, item.After}
	}

	clear(f.items[:n])

	f.items = f.items[n:]
	f.first += uint64(n)
}

// wake tells the followers that there is more. It is called with the lock.
func (f *Feed[K, P]) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// finish ends the feed. Whoever wants to follow it then begins a new one.
func (f *Feed[K, P]) finish(err error) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	f.over, f.err = true, err
	f.remove()
	f.wake()
}

// remove lets the hub forget the feed. It is called with the lock.
func (f *Feed[K, P]) remove() {
	if f.hub.feeds[f.key] == f {
		delete(f.hub.feeds, f.key)
	}
}

// Follower takes what a feed publishes. One goroutine uses it.
type Follower[K comparable, P any] struct {
	feed   *Feed[K, P]
	next   uint64 // number of the next item
	lines  int64  // how many lines the feed had had where the follower is
	behind bool   // it has lost what comes next
}

// Next returns what was published since, which may be nothing, and a channel that is closed when there is more. It
// fails with ErrBehind if some of it is not in memory any more, and when there is no more, with io.EOF or with
// whatever ended the feed.
func (m *Follower[K, P]) Next() (items []Item[P], changed <-chan struct{}, err error) {
	f := m.feed
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	m.behind = m.behind || m.next < f.first
	if m.behind {
		return nil, nil, ErrBehind
	}

	for _, e := range f.items[m.next-f.first:] {
		items = append(items, e.Item)
		m.lines = e.lines
	}

	if len(items) == 0 && f.over {
		if f.err != nil {
			return nil, nil, f.err
		}

		return nil, nil, io.EOF
	}

	m.next += uint64(len(items))
	if len(items) > 0 {
		select {
		case f.taken <- struct{}{}:
		default:
		}
	}

	return items, f.changed, nil
}

// Sent says that a follower who is behind has read so many lines elsewhere.
func (m *Follower[K, P]) Sent(lines int) {
	m.feed.hub.mu.Lock()
	defer m.feed.hub.mu.Unlock()

	m.lines += int64(lines)
}

// Lag returns how many lines the feed has had after those that the follower has.
func (m *Follower[K, P]) Lag() int64 {
	m.feed.hub.mu.Lock()
	defer m.feed.hub.mu.Unlock()

	return max(0, m.feed.lines-m.lines)
}

// Behind reports whether the follower has lost what comes next.
func (m *Follower[K, P]) Behind() bool {
	m.feed.hub.mu.Lock()
	defer m.feed.hub.mu.Unlock()

	return m.behind
}

// Rejoin lets a follower who was behind go on from a joint. It is false if that is not in memory.
func (m *Follower[K, P]) Rejoin(joint string) bool {
	m.feed.hub.mu.Lock()
	defer m.feed.hub.mu.Unlock()

	return !m.feed.over && m.enter(joint)
}

// Skip lets a follower who was behind go on with what is published next. It returns how many lines that leaves out and
// the place from which on nothing is left out. It is false if the feed has ended: what is left is not going to grow.
func (m *Follower[K, P]) Skip() (lines int64, at P, ok bool) {
	f := m.feed
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()

	if f.over {
		return 0, at, false
	}

	lines = max(0, f.lines-m.lines)
	f.hub.skipped += lines
	m.next, m.lines, m.behind = f.first+uint64(len(f.items)), f.lines, false

	return lines, f.end, true
}

// enter puts the follower where the feed has a joint: at the first such place, so that nothing is missed that was
// published without going on. It is called with the lock.
func (m *Follower[K, P]) enter(joint string) bool {
	f := m.feed
	before, lines := f.begin.joint, f.lines
	if len(f.items) > 0 {
		lines = f.items[0].lines - int64(f.items[0].Lines)
	}

	for i := 0; ; i++ {
		if before == joint && joint != "" {
			m.next, m.lines, m.behind = f.first+uint64(i), lines, false
			return true
		}
		if i == len(f.items) {
			return false
		}

		before, lines = f.items[i].Joint, f.items[i].lines
	}
}

// Over reports whether the feed of the follower has ended.
func (m *Follower[K, P]) Over() bool {
	m.feed.hub.mu.Lock()
	defer m.feed.hub.mu.Unlock()

	return m.feed.over
}

// Leave ends the following. With the last follower the feed ends, and Leave returns when nothing is published any more.
func (m *Follower[K, P]) Leave() {
	f := m.feed
	f.hub.mu.Lock()
	delete(f.followers, m)
	last := len(f.followers) == 0
	if last {
		f.remove()
	}

	f.hub.mu.Unlock()

	if last {
		f.cancel()
		<-f.done
	}
}
