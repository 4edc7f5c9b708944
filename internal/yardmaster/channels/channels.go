// Package channels keeps where users and projects are notified of what happens to their jobs.
//
// It holds the settings only. The server follows the feed, decides by them who is notified, and delivers.
package channels

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// Channels are all channels with what has changed in them. It is not safe for concurrent use.
type Channels struct {
	feed    *batch.Feed
	all     map[string]tenant.Channel // by path
	changed []tenant.Channel
}

// New returns none. Events go to the feed.
func New(feed *batch.Feed) *Channels { return &Channels{feed: feed, all: map[string]tenant.Channel{}} }

// Load restores the stored channels.
func (c *Channels) Load(state *batch.State) {
	for i := range state.Channels {
		c.all[state.Channels[i].Path()] = state.Channels[i]
	}
}

// Take moves what has changed into a batch.
func (c *Channels) Take(b *batch.Batch) { b.Channels, c.changed = c.changed, nil }

// All returns all channels by path.
func (c *Channels) All() []tenant.Channel {
	list := make([]tenant.Channel, 0, len(c.all))
	for _, path := range slices.Sorted(maps.Keys(c.all)) {
		list = append(list, c.all[path])
	}

	return list
}

// Get returns the channel of a user or project.
func (c *Channels) Get(of tenant.Subject, name string) (tenant.Channel, bool) {
	found, ok := c.all[tenant.ChannelPath(of, name)]
	return found, ok
}

// Check refuses a channel that would be one too many.
func (c *Channels) Check(set *tenant.Channel) error {
	if _, known := c.all[set.Path()]; known || c.count(set.Subject) < tenant.MaxChannels {
		return nil
	}

	return fault.New(fault.OverLimit, "too_many_channels", "%s has %d channels, the limit is %d",
		set.Subject, tenant.MaxChannels, tenant.MaxChannels).
		WithRemedy("remove some with trainyard notify remove")
}

// count returns how many channels a user or project has.
func (c *Channels) count(of tenant.Subject) int {
	n := 0
	for _, channel := range c.all {
		if channel.Subject == of {
			n++
		}
	}

	return n
}

// Put stores a channel that Check has accepted, or replaces the one of its name.
func (c *Channels) Put(now time.Time, set tenant.Channel, by id.User) tenant.Channel {
	old, known := c.all[set.Path()]
	kind, reason := "notify.changed", "changed by "

	if !known {
		kind, reason = "notify.added", "added by "
		old.Created = now
	}

	set.Seq, set.Created, set.Updated, set.By, set.Removed = old.Seq+1, old.Created, now, by, false
	c.all[set.Path()] = set
	c.changed = append(c.changed, set)
	c.event(now, kind, &set, by, reason+string(by))

	return set
}

// Remove deletes a channel.
func (c *Channels) Remove(now time.Time, of tenant.Subject, name string, by id.User) (tenant.Channel, error) {
	gone, known := c.Get(of, name)
	if !known {
		return gone, fault.New(fault.NotFound, "channel_not_found", "channel %s of %s not found", name, of)
	}

	delete(c.all, gone.Path())
	gone.Removed = true
	c.changed = append(c.changed, gone)
	c.event(now, "notify.removed", &gone, by, "removed by "+string(by))

	return gone, nil
}

func (c *Channels) event(now time.Time, kind string, of *tenant.Channel, by id.User, reason string) {
	c.feed.Add(now, batch.Event{
		Kind: kind, Actor: string(by), Owner: of.Subject.User, To: of.Path(),
		Reason: string(of.Kind) + " channel " + of.Path() + " " + reason,
	})
}
