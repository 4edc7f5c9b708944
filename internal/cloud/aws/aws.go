// Package aws provisions machines from Amazon EC2, or from a server that speaks its API.
//
// It is an adapter of cloud: a lease becomes one RunInstances call, whose client token
// is the yard and the lease, so that asking again gives the same machine. Everything that
// is provisioned carries its tags from its first moment, ends for good when it shuts itself
// down, and can be reached by nobody: agents dial out. The provider asks for a machine
// once and never by itself a second time; what only reads is tried again. Offers
// reads what there is to provision and at what price.
package aws

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

// Config is how an account is used.
type Config struct {
	Name    string   // of the provider, as offers have it; "aws" if empty
	Yard    string   // whose machines these are
	Regions []string // in which machines are provisioned and looked for

	Profile       string // of the files in ~/.aws; "" for the environment, the default profile or the machine's role
	Endpoint      string // of a server that speaks the EC2 API; "" for Amazon's own
	PriceEndpoint string // of one that speaks the price list API; "" for Amazon's own
	QuotaEndpoint string // of one that speaks the API of service quotas; "" for Amazon's own
	// Credentials are used in place of those that Profile and the environment give.
	Credentials sdk.CredentialsProvider

	// Images names the image of a region. In regions without one the newest image is taken that
	// is owned by ImageOwner and has a name like ImageName, where * stands for anything.
	Images     map[string]string
	ImageOwner string
	ImageName  string
	DiskGB     int // of the first disk; 0 for what the image has

	// Subnets names the subnet of a zone or of a whole region. Without one the default network is used.
	Subnets map[string]string
	// SecurityGroup names the group that machines are in. One that begins with sg- is used as it
	// is; any other is made in each network if it is absent, and lets nothing in. "" for
	// trainyard- and the yard.
	SecurityGroup   string
	KeyName         string // of a key pair with which people may log in; "" for none
	InstanceProfile string // role of the machines, by name; "" for none

	Tags map[string]string // further tags on everything that is provisioned
	// SpotMax is the most that is paid for a spot machine, in prices of its offer: 1.5 is half as
	// much again. 0 for the price of a machine that is not spot, which is Amazon's own limit.
	SpotMax float64
}

// Provider provisions machines in one account.
type Provider struct {
	cfg   Config
	base  sdk.Config
	plain func(*ec2.Options) // for calls that are made once

	mu      sync.Mutex
	regions map[string]*region
}

// region is what is known of one region.
type region struct {
	name   string
	client *ec2.Client
	// turn is held by the one who finds out what the region has; a channel, because waiting
	// for it ends with a context.
	turn   chan struct{}
	image  image
	groups map[string]string // id of the security group, by network
}

// maxReadAttempts is how often a call that changes nothing is tried, and maxBackoff how
// long is waited in between: the caller has a deadline and retries anyway.
const (
	maxReadAttempts = 3
	maxBackoff      = 2 * time.Second
)

// New returns a provider. It asks Amazon nothing yet.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if cfg.Name == "" {
		cfg.Name = "aws"
	}

	if err := cfg.check(); err != nil {
		return nil, err
	}

	options := []func(*config.LoadOptions) error{
		config.WithRegion(cfg.Regions[0]),
		config.WithRetryer(func() sdk.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = maxReadAttempts, maxBackoff
			})
		}),
	}

	if cfg.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(cfg.Profile))
	}

	if cfg.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(cfg.Credentials))
	}

	base, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "aws_config", "cannot load the AWS configuration: %v", err).
			WithRemedy("check the profile %q in ~/.aws", cfg.Profile).WithCause(err)
	}

	return &Provider{
		cfg: cfg, base: base, regions: map[string]*region{},
		plain: func(o *ec2.Options) { o.Retryer = sdk.NopRetryer{} },
	}, nil
}

// check finds what is wrong with the settings before anything is asked for.
func (c *Config) check() error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "aws_config", format, args...).WithField(field)
	}
	if c.Yard == "" || strings.ContainsAny(c.Yard, `*?\`) {
		// Amazon takes these signs in a filter for any text: machines of others would be listed.
		return bad("yard", "must be a name without *, ? and \\, got %q", c.Yard)
	}

	if len(c.Regions) == 0 {
		return bad("regions", "must have at least one region, e.g. us-east-1")
	}

	for i, r := range c.Regions {
		if r == "" || slices.Contains(c.Regions[:i], r) {
			return bad("regions", "must be unique and not empty, got %q", r)
		}
		if c.Images[r] == "" && c.ImageName == "" {
			return bad("images", "must have an image for region %s unless image_name is set", r)
		}
	}

	if c.ImageName != "" && c.ImageOwner == "" {
		return bad(
			"image_owner",
			"is required with image_name %q, because anyone can publish an image under any name",
			c.ImageName,
		)
	}

	for field, address := range map[string]string{"endpoint": c.Endpoint, "price_endpoint": c.PriceEndpoint,
		"quota_endpoint": c.QuotaEndpoint} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Host == "") {
			return bad(field, "must be a URL such as http://127.0.0.1:5000, got %q", address)
		}
	}

	for tag := range c.Tags {
		if strings.HasPrefix(tag, "trainyard-") || strings.HasPrefix(tag, "aws:") || tag == "Name" {
			return bad("tags", "must not include %s, which is reserved", tag)
		}
	}

	if c.SpotMax < 0 {
		return bad("spot_max", "must be 0 or a multiple of the offer's price such as 1.5, got %g", c.SpotMax)
	}
	if c.DiskGB < 0 {
		return bad("disk_gb", "must be 0 or a disk size in GB, got %d", c.DiskGB)
	}

	return nil
}

// Name returns the name by which offers are of this provider.
func (p *Provider) Name() string { return p.cfg.Name }

// region returns what is known of a region. A machine may be in one that is not in the
// settings any more, and must be ended there nevertheless.
func (p *Provider) region(name string) *region {
	p.mu.Lock()
	defer p.mu.Unlock()

	r, ok := p.regions[name]
	if !ok {
		r = &region{
			name: name, turn: make(chan struct{}, 1), groups: map[string]string{},
			client: ec2.NewFromConfig(p.base, func(o *ec2.Options) {
				o.Region = name
				if p.cfg.Endpoint != "" {
					o.BaseEndpoint = sdk.String(p.cfg.Endpoint)
				}
			}),
		}

		p.regions[name] = r
	}

	return r
}

// lock takes the turn of finding out, or gives up with ctx.
func (r *region) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, unclear(ctx, "wait for another request to "+r.name, ctx.Err())
	}
}

var _ cloud.Provider = (*Provider)(nil)
