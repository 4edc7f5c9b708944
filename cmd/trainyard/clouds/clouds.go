// Package clouds wires up provisioning: the clouds file, the providers, the runner that calls them,
// and what provisioned machines need to join the yard.
//
// It is part of the wiring: only this package and cmd/trainyard import the adapters.
package clouds

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/cloud/openstack"
	"trainyard/internal/cloud/process"
	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/provision"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/server"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yamlfile"
	"trainyard/internal/yardmaster"
)

// Clouds is the clouds file: where nodes can be provisioned and on what terms.
type Clouds struct {
	Yard      string          `yaml:"yard"`   // distinguishes this yard from others in the same account
	Server    string          `yaml:"server"` // URL under which provisioned machines reach the server
	Provision terms           `yaml:"provision"`
	Roads     roads           `yaml:"roads"`
	Providers []cloudProvider `yaml:"providers"`
	folder    string
}

// terms says when nodes are provisioned and released.
type terms struct {
	Term     job.Duration `yaml:"term"`
	Patience job.Duration `yaml:"patience"`
	Settle   job.Duration `yaml:"settle"`
	Idle     job.Duration `yaml:"idle"`
	Margin   job.Duration `yaml:"margin"`
	MaxNodes int          `yaml:"max_nodes"`
	List     job.Duration `yaml:"list_every"`
	Warm     []struct {
		Offer     string       `yaml:"offer"`
		GPU       string       `yaml:"gpu"`
		Nodes     int          `yaml:"nodes"`
		LookBack  job.Duration `yaml:"look_back"`
		MaxHourly job.Money    `yaml:"max_hourly"`
	} `yaml:"warm"`
}

// lookBack is how long a job's use of a node counts as demand for another that is kept warm, where nothing is set.
const lookBack = 2 * time.Hour

// roads is the speed in bytes per second and the price in dollars of moving data, as in dataset.Network.
type roads struct {
	In     job.Bytes   `yaml:"in"`
	Across job.Bytes   `yaml:"across"`
	PerGB  money.PerGB `yaml:"per_gb"`
}

// cloudProvider is one provider. The tag kinds says to which kinds of provider a key applies; one without applies
// to all. A key that does not apply is refused.
type cloudProvider struct {
	Name   string `yaml:"name"`
	Kind   string `yaml:"kind"`
	Offers string `yaml:"offers"` // price file, relative to the directory of this file
	// DataRoots are the directories of its machines below which datasets may be read, as the agent's setting has them.
	DataRoots []string `yaml:"data_roots"`

	Regions []string `yaml:"regions" kinds:"aws,openstack"`
	KeyName string   `yaml:"key_name" kinds:"aws,openstack"`

	Profile       string            `yaml:"profile" kinds:"aws"`
	Endpoint      string            `yaml:"endpoint" kinds:"aws"`
	Images        map[string]string `yaml:"images" kinds:"aws"`
	ImageOwner    string            `yaml:"image_owner" kinds:"aws"`
	ImageName     string            `yaml:"image_name" kinds:"aws"`
	DiskGB        int               `yaml:"disk_gb" kinds:"aws"`
	Subnets       map[string]string `yaml:"subnets" kinds:"aws"`
	SecurityGroup string            `yaml:"security_group" kinds:"aws"`
	Role          string            `yaml:"role" kinds:"aws"`
	Tags          map[string]string `yaml:"tags" kinds:"aws"`
	SpotMax       float64           `yaml:"spot_max" kinds:"aws"`

	Cloud          string   `yaml:"cloud" kinds:"openstack"`
	CloudsFile     string   `yaml:"clouds_file" kinds:"openstack"`
	Image          string   `yaml:"image" kinds:"openstack"`
	Network        string   `yaml:"network" kinds:"openstack"`
	SecurityGroups []string `yaml:"security_groups" kinds:"openstack"`
	ConfigDrive    bool     `yaml:"config_drive" kinds:"openstack"`

	Dir   string       `yaml:"dir" kinds:"process"`
	Boot  job.Duration `yaml:"boot" kinds:"process"`
	Quota int          `yaml:"quota" kinds:"process"`
	// Capacity bounds machines at once by TYPE or TYPE/REGION; Seed determines when spot machines are
	// reclaimed.
	Capacity map[string]int `yaml:"capacity" kinds:"process"`
	Seed     uint64         `yaml:"seed" kinds:"process"`
	// Notice is how long before they are reclaimed spot machines are told so.
	Notice job.Duration `yaml:"notice" kinds:"process"`
}

// providerKinds are the kinds of provider, as they are written.
var providerKinds = []string{"aws", "openstack", "process"}

// checkKind refuses a provider of an unknown kind, and keys that do not apply to its kind.
func (p *cloudProvider) checkKind(f *yamlfile.File, path string) {
	if !slices.Contains(providerKinds, p.Kind) {
		f.Fail(path+"kind", fmt.Sprintf("must be aws, openstack or process, got %q", p.Kind), "write it as in kind: aws")
		return
	}

	for field := range reflect.TypeFor[cloudProvider]().Fields() {
		kinds := field.Tag.Get("kinds")
		if kinds == "" || slices.Contains(strings.Split(kinds, ","), p.Kind) {
			continue
		}

		if key := field.Tag.Get("yaml"); f.Given(path + key) {
			f.Fail(
				path+key,
				fmt.Sprintf("applies to providers of kind %s only, this one is of kind %s",
					strings.ReplaceAll(kinds, ",", " or "), p.Kind),
				"remove it",
			)
		}
	}
}

func badClouds(path, format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_clouds", "%s cannot be used: %s", path, fmt.Sprintf(format, args...)).
		WithField("clouds")
}

// ReadClouds reads the clouds file, if path is not empty, and all price files that it names.
func ReadClouds(path string) (*Clouds, []fleet.Offer, error) {
	if path == "" {
		return nil, nil, nil
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, badClouds(path, "%v", err)
	}

	c := &Clouds{folder: filepath.Dir(path)}
	f := yamlfile.Decode(text, c)
	for i := range c.Providers {
		c.Providers[i].checkKind(f, fmt.Sprintf("providers[%d].", i))
	}

	if err := f.Err(); err != nil {
		return nil, nil, badClouds(path, "%v", err)
	}
	if len(c.Providers) == 0 {
		return nil, nil, badClouds(path, "it names no provider")
	}

	var offers []fleet.Offer
	seen := map[string]bool{}

	for i := range c.Providers {
		p := &c.Providers[i]
		if p.Name == "" {
			p.Name = p.Kind
		}

		if seen[p.Name] {
			return nil, nil, badClouds(path, "two providers are called %s", p.Name)
		}

		seen[p.Name] = true

		list, err := c.offers(p)
		if err != nil {
			return nil, nil, err
		}

		offers = append(offers, list...)
	}

	return c, offers, nil
}

// offers reads the price file of a provider. GPU properties that it does not state come from the
// table of GPU models.
func (c *Clouds) offers(p *cloudProvider) ([]fleet.Offer, error) {
	path := p.Offers
	if path == "" {
		return nil, badClouds(
			"provider "+p.Name,
			"it has no price file: write one and name it as offers, or import one with trainyard offers import",
		)
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(c.folder, path)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badClouds(path, "%v", err)
	}

	list, err := provision.ParseOffers(path, text)
	if err != nil {
		return nil, err
	}

	for i := range list {
		if list[i].Provider != p.Name {
			return nil, badClouds(path, "it has offers of %s and belongs to %s", list[i].Provider, p.Name)
		}

		if list[i].TFLOPS == 0 && list[i].GPU != "" {
			list[i].TFLOPS = gpuspec.Describe(fleet.GPU{Model: list[i].GPU, Memory: list[i].GPUMemory}).Peak
		}
	}

	return list, nil
}

// Names lists the names of the providers.
func (c *Clouds) Names() []string {
	if c == nil {
		return nil
	}

	list := make([]string, len(c.Providers))
	for i := range c.Providers {
		list[i] = c.Providers[i].Name
	}

	return list
}

// Terms overrides the defaults in y with the terms of the file.
func (c *Clouds) Terms(y *yardmaster.Config) error {
	if c == nil {
		return nil
	}

	h := &c.Provision
	for _, d := range []struct {
		from job.Duration
		to   *time.Duration
	}{{h.Term, &y.Provision.Term}, {h.Patience, &y.Provision.JoinTimeout}, {h.Settle, &y.Provision.ListLag},
		{h.Idle, &y.Keep.MaxIdle}, {h.Margin, &y.Keep.ReleaseMargin}} {
		if d.from > 0 {
			*d.to = time.Duration(d.from)
		}
	}

	y.Provision.MaxNodes = h.MaxNodes
	for _, w := range h.Warm {
		line := provision.WarmPool{
			Offer: w.Offer, Nodes: w.Nodes, LookBack: time.Duration(w.LookBack), MaxHourly: w.MaxHourly,
		}

		if line.LookBack == 0 {
			line.LookBack = lookBack
		}

		if err := line.GPU.UnmarshalText([]byte(w.GPU)); err != nil {
			return badClouds("warm", "%v", err)
		}

		if w.Nodes < 1 {
			return badClouds("warm", "nodes must be at least 1, got %d", w.Nodes)
		}

		y.Keep.Warm = append(y.Keep.Warm, line)
	}

	if vain := provision.InVain(y.Keep.Warm, y.Offers); vain != "" {
		return badClouds("warm", "%s", vain)
	}

	if r := c.Roads; r != (roads{}) {
		y.Network = dataset.Network{In: r.In, Across: r.Across, PerGB: r.PerGB}
	}

	return nil
}

// provider returns the adapter for a provider.
func (p *Provisioner) provider(ctx context.Context, c *cloudProvider) (cloud.Provider, error) {
	switch c.Kind {
	case "aws":
		return aws.New(ctx, p.awsConfig(c))
	case "openstack":
		return openstack.New(p.yard, openstackOptions(c))
	}

	o, err := p.processConfig(c)
	if err != nil {
		return nil, err
	}

	return process.New(o)
}

// awsConfig returns the configuration of an AWS provider.
func (p *Provisioner) awsConfig(c *cloudProvider) aws.Config {
	return aws.Config{
		Name: c.Name, Yard: p.yard, Regions: c.Regions, Profile: c.Profile, Endpoint: c.Endpoint,
		Images: c.Images, ImageOwner: c.ImageOwner, ImageName: c.ImageName, DiskGB: c.DiskGB,
		Subnets: c.Subnets, SecurityGroup: c.SecurityGroup, KeyName: c.KeyName, InstanceProfile: c.Role,
		Tags: c.Tags, SpotMax: c.SpotMax,
	}
}

// openstackOptions returns the configuration of an OpenStack provider; the clouds file overrides
// the environment.
func openstackOptions(c *cloudProvider) openstack.Config {
	o := openstack.Environ(os.Getenv)
	o.Name = c.Name
	o.Cloud = c.Cloud
	o.File = c.CloudsFile
	o.Image = c.Image
	o.Network = c.Network
	o.SecurityGroups = c.SecurityGroups
	o.KeyPair = c.KeyName
	o.ConfigDrive = c.ConfigDrive
	if len(c.Regions) > 0 {
		o.Regions = c.Regions
	}

	return o
}

// processConfig returns the configuration of the provider whose machines are processes on this machine.
func (p *Provisioner) processConfig(c *cloudProvider) (process.Config, error) {
	program, err := os.Executable()
	if err != nil {
		return process.Config{}, fmt.Errorf("find this program: %w", err)
	}

	dir := c.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(p.Clouds.folder, dir)
	}

	return process.Config{
		Name: c.Name, Yard: p.yard, Dir: dir, Program: program, Environ: os.Environ(), Boot: time.Duration(c.Boot),
		Quota: c.Quota, Capacity: c.Capacity, Seed: c.Seed, Notice: time.Duration(c.Notice), Clock: p.Clock, Log: p.Log,
	}, nil
}

// Options are the dependencies of a Provisioner.
type Options struct {
	Clouds *Clouds // nil if nothing can be provisioned
	Data   string  // data directory of the server
	URL    string  // of the server, unless the clouds file names one
	CA     *auth.CA
	Config lifecycle.Config
	Clock  clock.Clock
	Log    *slog.Logger
}

// Provisioner prepares the requests for the leases of a running server.
type Provisioner struct {
	Options
	Loop    *server.Loop // must be set before the runner starts
	yard    string
	server  string
	program string // SHA-256 of this binary, which machines download
	key     []byte
}

// NewRunner returns the runner that calls the providers, nil if there are none.
func NewRunner(ctx context.Context, o Options) (*reconcile.Runner, *Provisioner, error) {
	c := o.Clouds
	if c == nil {
		return nil, nil, nil
	}

	p := &Provisioner{Options: o, yard: c.Yard, server: c.Server}
	if p.yard == "" {
		p.yard = "yard-" + o.CA.Hash()[:12]
	}

	if p.server == "" {
		p.server = o.URL
	}

	var err error
	p.key, err = leaseKey(filepath.Join(o.Data, "provision.key"))
	if err != nil {
		return nil, nil, err
	}

	p.program, err = hashProgram()
	if err != nil {
		return nil, nil, err
	}

	r := &reconcile.Runner{
		Timing:   reconcile.DefaultTiming(),
		Timeouts: reconcile.DefaultTimeouts(),
		Prepare:  p.prepare,
		Clock:    o.Clock,
		Log:      o.Log,
	}

	if c.Provision.List > 0 {
		r.Timing.List = time.Duration(c.Provision.List)
	}

	for i := range c.Providers {
		provider, err := p.provider(ctx, &c.Providers[i])
		if err != nil {
			return nil, nil, fmt.Errorf("provider %s: %w", c.Providers[i].Name, err)
		}

		r.Providers = append(r.Providers, provider)
	}

	return r, p, nil
}

// leaseKey returns the key from which the join tokens of provisioned machines are derived, so that
// a repeated request for the same lease is identical.
func leaseKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) == sha256.Size {
		return key, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the key of provisioned machines: %w", err)
	}

	key = make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make the key of provisioned machines: %w", err)
	}

	return key, os.WriteFile(path, key, 0o600)
}

// stream is a deterministic stream of bytes derived from a key and a name.
type stream struct {
	key     []byte
	name    string
	n       byte
	pending []byte
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if len(s.pending) == 0 {
			m := hmac.New(sha256.New, s.key)
			m.Write([]byte(s.name))
			m.Write([]byte{s.n})
			s.pending = m.Sum(nil)
			s.n++
		}

		c := copy(p[n:], s.pending)
		s.pending = s.pending[c:]
		n += c
	}

	return len(p), nil
}

// prepare returns the request for a lease. It is the same each time, and has a token with which
// only the machine of this lease can join.
func (p *Provisioner) prepare(ctx context.Context, l *fleet.Lease) (cloud.Request, error) {
	secret, err := auth.Mint(tenant.JoinToken, &stream{key: p.key, name: string(l.ID)}, p.CA.Hash())
	if err != nil {
		return cloud.Request{}, err
	}

	_, err = p.Loop.Do(ctx, yardmaster.AddToken{By: "yard", Token: tenant.Token{
		ID:       secret.ID,
		Kind:     tenant.JoinToken,
		Owner:    "admin",
		Hash:     secret.Hash,
		Class:    string(fleet.OnDemand),
		Pool:     l.Offer.Provider,
		Lease:    l.ID,
		Note:     "for the machine of lease " + string(l.ID),
		UsesLeft: 1,
		Expires:  l.Ends.Add(time.Hour),
	}})

	var f *fault.Error
	if err != nil && (!errors.As(err, &f) || f.Code != "token_exists") {
		return cloud.Request{}, err
	}

	r := cloud.Request{
		Yard:  p.yard,
		Lease: l.ID,
		Offer: l.Offer,
		Name:  "cloud-" + string(l.ID),
		Until: l.Requested.Add(time.Duration(l.Offer.Boot)*3/2 + p.Config.JoinTimeout),
		Boot: cloud.Boot{
			Server:    p.server,
			Token:     secret.Text,
			AgentURL:  strings.TrimSuffix(p.server, "/") + programPath,
			AgentHash: p.program,

			SpotNotice: p.spotNotice(l.Offer.Provider),
			DataRoots:  p.dataRoots(l.Offer.Provider),
		},
	}

	r.Boot.Script, err = cloud.UserData(r, l.Requested)

	return r, err
}

// dataRoots lists the directories of a provider's machines below which datasets may be read.
func (p *Provisioner) dataRoots(provider string) string {
	for i := range p.Clouds.Providers {
		if c := &p.Clouds.Providers[i]; c.Name == provider {
			return strings.Join(c.DataRoots, ",")
		}
	}

	return ""
}

// spotNotice says where the machines of a provider read that they will be reclaimed. Those that are processes get it
// from the adapter.
func (p *Provisioner) spotNotice(provider string) string {
	for i := range p.Clouds.Providers {
		if c := &p.Clouds.Providers[i]; c.Name == provider && c.Kind == "aws" {
			return c.Kind
		}
	}

	return ""
}

// programPath is the path from which machines download the agent's binary, which is this one.
const programPath = "/agent/program"

func hashProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}

	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}

	sum := sha256.New()
	_, err = io.Copy(sum, f)

	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// How many downloads of the program there may be at the same time, and how slow they may be. It is for everybody:
// machines that boot cannot check who the server is and must not send it a token.
const (
	programsEach = 2 // of one address
	programsAll  = 4
	programRate  = 256 << 10 // bytes per second
)

// WithProgram serves this binary to provisioned machines, in addition to next.
func WithProgram(pace httpapi.Pace, next http.Handler) http.Handler {
	slots := httpapi.NewSlots(programsEach, programsAll, "too_many_downloads", "downloads of the program")
	pace.Rate = programRate

	download := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}

		done, err := slots.Take(host)
		if err != nil {
			httpapi.WriteProblem(w, err)
			return
		}

		defer done()

		path, err := os.Executable()
		if err != nil {
			http.Error(w, "the program cannot be found", http.StatusInternalServerError)
			return
		}

		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeFile(w, r, path)
	})

	mux := http.NewServeMux()
	mux.Handle("GET "+programPath, httpapi.Paced(pace, download))
	mux.Handle("/", httpapi.Paced(httpapi.DefaultPace(pace.Clock), next))

	return mux
}
