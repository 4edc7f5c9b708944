package tenant

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/id"
)

// MaxChannels is how many channels a user or project has at most.
const MaxChannels = 10

// ChannelKind is how a channel delivers notifications.
type ChannelKind string

// The kinds of channel.
const (
	WebhookChannel ChannelKind = "webhook" // JSON, signed with a key that the receiver knows
	SlackChannel   ChannelKind = "slack"   // text, in the form that Slack and Mattermost accept
	MailChannel    ChannelKind = "mail"
)

// ChannelKinds lists every kind of channel.
func ChannelKinds() []ChannelKind { return []ChannelKind{WebhookChannel, SlackChannel, MailChannel} }

// Topic is what a notification is about.
type Topic string

// The topics.
const (
	TopicDone     Topic = "done"
	TopicFailed   Topic = "failed"
	TopicStalled  Topic = "stalled"   // a job reports no progress
	TopicNaN      Topic = "nan"       // a metric is not a number
	TopicIdle     Topic = "idle"      // a job that a person works in is idle and will be stopped
	TopicNeedsYou Topic = "needs_you" // the inbox has a question
	TopicBudget   Topic = "budget"    // a quota or budget is nearly used up, or is, or will be
)

// topics says which events of the feed are notified, and under which topic.
var topics = []struct {
	topic Topic
	kinds []string
}{
	{TopicDone, []string{"job.succeeded"}},
	{TopicFailed, []string{"job.failed"}},
	{TopicStalled, []string{"job.progress_stalled"}},
	{TopicNaN, []string{"job.metric_not_number"}},
	{TopicIdle, []string{"job.idle"}},
	{TopicNeedsYou, []string{"inbox.asked"}},
	{TopicBudget, []string{"budget.near", "budget.used_up", "budget.forecast"}},
}

// Topics lists every topic.
func Topics() []Topic {
	list := make([]Topic, len(topics))
	for i := range topics {
		list[i] = topics[i].topic
	}

	return list
}

// TopicOf returns the topic of events of a kind. It reports false if nobody is notified of them.
func TopicOf(kind string) (Topic, bool) {
	for i := range topics {
		if slices.Contains(topics[i].kinds, kind) {
			return topics[i].topic, true
		}
	}

	return "", false
}

// Channel is where a user or project is notified of what happens to their jobs. What must stay secret of it, such as a
// key or an address that contains one, is a Secret of the name SecretName.
type Channel struct {
	Subject Subject     `json:"subject"` // the user whose jobs, or the project, it is about
	Name    string      `json:"name"`
	Seq     uint64      `json:"seq"`
	Kind    ChannelKind `json:"kind"`
	Topics  []Topic     `json:"topics"`
	Host    string      `json:"host,omitempty"` // of the receiver, for people
	To      string      `json:"to,omitempty"`   // of mail: the recipient
	From    string      `json:"from,omitempty"` // of mail: the sender; "" for that of the yard
	SMTP    string      `json:"smtp,omitempty"` // of mail: URL of the server, without the password; "" for that of the yard
	Created time.Time   `json:"created"`
	Updated time.Time   `json:"updated"`
	By      id.User     `json:"by"` // who set it
	Removed bool        `json:"-"`  // it is deleted from the store
}

// channelSecrets begins the names of the secrets of channels. A job file cannot ask for such a name.
const channelSecrets = "notify/"

// Path identifies the channel: user/ada/phone.
func (c *Channel) Path() string { return ChannelPath(c.Subject, c.Name) }

// ChannelPath identifies a channel.
func ChannelPath(of Subject, name string) string { return of.String() + "/" + name }

// SecretName is the name of the secret that belongs to a channel.
func (c *Channel) SecretName() string { return channelSecrets + c.Name }

// OfChannel reports whether the secret belongs to a channel and not to jobs.
func (s *Secret) OfChannel() bool { return strings.HasPrefix(s.Name, channelSecrets) }
