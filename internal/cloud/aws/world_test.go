package aws_test

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/cloud/cloudtest"
)

const (
	home      = "us-east-1" // where most machines of these tests are
	elsewhere = "eu-west-1"
	keyID     = "AKIAYARD"
)

// moto is started by the first test that needs it and shared by all: yards keep apart.
var moto = sync.OnceValues(func() (*cloudtest.Server, error) {
	server, err := cloudtest.StartMoto()
	started.Store(server)
	return server, err
})

var (
	started atomic.Pointer[cloudtest.Server]
	yards   atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if server := started.Load(); server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	os.Exit(code)
}

// world is an account at moto, seen through a proxy that does what moto leaves out: it
// checks the access key, keeps client tokens as EC2 documents them, and makes trouble.
type world struct {
	*cloudtest.Proxy
	t    *testing.T
	yard string
	// raw speaks to moto itself, past the proxy.
	raw map[string]*ec2.Client
	// runs answers RunInstances, with memory of client tokens or without.
	runs cloudtest.Trouble

	mu      sync.Mutex
	tokens  map[string]*tokenUse
	lagging bool
	hidden  map[string]bool // made while lists lag
	taken   map[string]bool // spot machines that were taken back
}

// tokenUse is what was asked for with a client token, and what was answered.
type tokenUse struct {
	mu     sync.Mutex
	asked  string
	answer *cloudtest.Answer
}

func newWorld(t *testing.T, withTokens bool) *world {
	t.Helper()
	server, err := moto()
	if err != nil {
		cloudtest.SkipMoto(t, err)
	}

	w := &world{
		Proxy: cloudtest.NewProxy(t, server.URL), t: t, yard: fmt.Sprintf("yard%d", yards.Add(1)),
		raw: map[string]*ec2.Client{}, tokens: map[string]*tokenUse{}, hidden: map[string]bool{}, taken: map[string]bool{},
	}

	for _, r := range []string{home, elsewhere} {
		w.raw[r] = ec2.New(ec2.Options{Region: r, BaseEndpoint: sdk.String(server.URL), Credentials: keys("AKIAWORLD")})
	}

	w.While(action("DescribeInstances"), w.describe)
	w.While(action("TerminateInstances"), w.terminate)

	w.runs = w.run
	if withTokens {
		w.runs = w.runOnce
	}

	w.While(action("RunInstances"), w.runs)

	w.While(func(a *cloudtest.Request) bool {
		return !strings.Contains(a.Header.Get("Authorization"), "Credential="+keyID+"/")
	},
		refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials"))

	return w
}

func keys(name string) sdk.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(name, "secret", "")
}

// config is how the provider of these tests is set up.
func (w *world) config() aws.Config {
	return aws.Config{
		Yard: w.yard, Regions: []string{home, elsewhere}, Endpoint: w.URL, Credentials: keys(keyID),
		ImageOwner: "099720109477", ImageName: "ubuntu/images/hvm-ssd/ubuntu-trusty-14.04-*",
	}
}

func (w *world) provider(change ...func(*aws.Config)) *aws.Provider {
	w.t.Helper()
	cfg := w.config()
	for _, c := range change {
		c(&cfg)
	}

	p, err := aws.New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}

	return p
}

// action matches requests for one action of the API.
func action(names ...string) func(*cloudtest.Request) bool {
	return func(a *cloudtest.Request) bool { return slices.Contains(names, a.Form.Get("Action")) }
}

// refuse answers as EC2 writes its errors.
func refuse(status int, code, message string) cloudtest.Trouble {
	return cloudtest.Say(status, "text/xml", fmt.Sprintf(
		`<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>r-1</RequestID></Response>`,
		code,
		message,
	))
}

// run creates a machine at moto and hides it while lists lag.
func (w *world) run(rw http.ResponseWriter, a *cloudtest.Request) {
	if answer := w.forwardRun(rw, a); answer != nil {
		answer.Write(rw)
	}
}

func (w *world) forwardRun(rw http.ResponseWriter, a *cloudtest.Request) *cloudtest.Answer {
	answer, err := w.Forward(a)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return nil
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.lagging {
		for _, one := range instanceIDs(answer.Body) {
			w.hidden[one] = true
		}
	}

	return answer
}

// runOnce keeps client tokens: the same request with the same token gets the same
// answer, another with the same token is refused.
func (w *world) runOnce(rw http.ResponseWriter, a *cloudtest.Request) {
	w.mu.Lock()
	use := w.tokens[a.Form.Get("ClientToken")]
	if use == nil {
		use = &tokenUse{}
		w.tokens[a.Form.Get("ClientToken")] = use
	}

	w.mu.Unlock()
	use.mu.Lock()
	defer use.mu.Unlock()

	switch asked := a.Form.Encode(); {
	case use.answer != nil && use.asked == asked:
		use.answer.Write(rw)
	case use.answer != nil:
		refuse(
			http.StatusBadRequest,
			"IdempotentParameterMismatch",
			"The client token has been used with other parameters",
		)(
			rw,
			a,
		)
	default:
		answer := w.forwardRun(rw, a)
		if answer == nil {
			return
		}

		if answer.Status == http.StatusOK {
			use.asked, use.answer = asked, answer
		}

		answer.Write(rw)
	}
}

// terminate does not know machines that are hidden.
func (w *world) terminate(rw http.ResponseWriter, a *cloudtest.Request) {
	w.mu.Lock()
	hidden := w.hidden[a.Form.Get("InstanceId.1")]
	w.mu.Unlock()

	if hidden {
		refuse(
			http.StatusBadRequest,
			"InvalidInstanceID.NotFound",
			"The instance ID '"+a.Form.Get("InstanceId.1")+"' does not exist",
		)(
			rw,
			a,
		)

		return
	}

	w.Through(rw, a)
}

// describe leaves hidden machines out and says why those that were taken back ended.
func (w *world) describe(rw http.ResponseWriter, a *cloudtest.Request) {
	answer, err := w.Forward(a)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}

	w.mu.Lock()
	hidden, taken := maps.Clone(w.hidden), maps.Clone(w.taken)
	w.mu.Unlock()

	answer.Body = eachReservation(answer.Body, func(text []byte) []byte {
		for _, one := range instanceIDs(text) {
			if hidden[one] {
				return nil
			}

			if taken[one] {
				return withReason(
					text,
					"Server.SpotInstanceTermination",
					"Server.SpotInstanceTermination: Spot instance termination",
				)
			}
		}

		return text
	})

	answer.Write(rw)
}

// eachReservation rewrites the entries of a list of reservations; nil drops one. It
// cuts them out of the text by where the XML says they are, and leaves the rest as it is.
func eachReservation(body []byte, rewrite func([]byte) []byte) []byte {
	d := xml.NewDecoder(bytes.NewReader(body))
	var out bytes.Buffer
	var path []string
	var kept, began int64

	for {
		at := d.InputOffset()
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return body // no XML: an error of the server, passed on as it is
		}

		switch tok := tok.(type) {
		case xml.StartElement:
			path = append(path, tok.Name.Local)
			if isReservation(path) {
				began = at
			}
		case xml.EndElement:
			if isReservation(path) {
				out.Write(body[kept:began])
				out.Write(rewrite(body[began:d.InputOffset()]))
				kept = d.InputOffset()
			}

			path = path[:len(path)-1]
		}
	}

	out.Write(body[kept:])

	return out.Bytes()
}

func isReservation(path []string) bool {
	return len(path) == 3 && path[1] == "reservationSet" && path[2] == "item"
}

// instanceIDs returns the names of machines in a text, each once.
func instanceIDs(text []byte) []string {
	var ids []string
	for _, part := range strings.Split(string(text), "<instanceId>")[1:] {
		name, _, _ := strings.Cut(part, "<")
		ids = append(ids, name)
	}

	slices.Sort(ids)

	return slices.Compact(ids)
}

// withReason puts the reason of its end into the entry of a machine.
func withReason(text []byte, code, message string) []byte {
	reason := "<stateReason><code>" + code + "</code><message>" + message + "</message></stateReason>"
	before, rest, found := strings.Cut(string(text), "<stateReason>")
	if found {
		_, after, _ := strings.Cut(rest, "</stateReason>")
		return []byte(before + reason + after)
	}

	return []byte(strings.Replace(string(text), "<instanceType>", reason+"<instanceType>", 1))
}

// lag hides machines that are made from now on.
func (w *world) lag() (catchup func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.lagging = true

	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()

		w.lagging = false
		clear(w.hidden)
	}
}

// takeBack ends a spot machine as Amazon does.
func (w *world) takeBack(t *testing.T, instance string) {
	t.Helper()

	if _, err := w.raw[home].TerminateInstances(
		t.Context(),
		&ec2.TerminateInstancesInput{InstanceIds: []string{instance}},
	); err != nil {
		t.Fatal(err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.taken[instance] = true
}

// put makes a machine with these tags, past the provider.
func (w *world) put(t *testing.T, tags map[string]string) string {
	t.Helper()
	spec := types.TagSpecification{ResourceType: types.ResourceTypeInstance}
	for key, value := range tags {
		spec.Tags = append(spec.Tags, types.Tag{Key: sdk.String(key), Value: sdk.String(value)})
	}

	out, err := w.raw[home].RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: sdk.String("ami-1e749f67"), InstanceType: "t3.micro", MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		TagSpecifications: []types.TagSpecification{spec},
	})
	if err != nil {
		t.Fatal(err)
	}

	return sdk.ToString(out.Instances[0].InstanceId)
}

// instances is what moto holds for the yard, in a region.
func (w *world) instances(t *testing.T, region string) []types.Instance {
	t.Helper()
	var all []types.Instance

	pages := ec2.NewDescribeInstancesPaginator(w.raw[region], &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: sdk.String("tag:" + cloud.TagYard), Values: []string{w.yard}}},
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range out.Reservations {
			all = append(all, r.Instances...)
		}
	}

	return all
}

// machines is what moto holds for the yard, as the contract wants to see it.
func (w *world) machines(t *testing.T) []cloudtest.Machine {
	t.Helper()
	var all []cloudtest.Machine
	for _, i := range slices.Concat(w.instances(t, home), w.instances(t, elsewhere)) {
		m := cloudtest.Machine{
			ID:    sdk.ToString(i.InstanceId),
			Tags:  map[string]string{},
			Spot:  i.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
			Ended: i.State.Name == types.InstanceStateNameTerminated,
		}

		for _, tag := range i.Tags {
			m.Tags[sdk.ToString(tag.Key)] = sdk.ToString(tag.Value)
		}

		m.UserData = w.userData(t, m.ID)
		all = append(all, m)
	}

	return all
}

func (w *world) userData(t *testing.T, instance string) string {
	t.Helper()
	out, err := w.raw[home].DescribeInstanceAttribute(t.Context(), &ec2.DescribeInstanceAttributeInput{
		InstanceId: sdk.String(instance), Attribute: types.InstanceAttributeNameUserData,
	})
	if err != nil {
		t.Fatal(err)
	}

	if out.UserData == nil {
		return ""
	}

	text, err := base64.StdEncoding.DecodeString(sdk.ToString(out.UserData.Value))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// asked is a request at the proxy.
type asked = cloudtest.Request

// inRegion reports for which region a request is signed.
func inRegion(a *asked, region string) bool {
	return strings.Contains(a.Header.Get("Authorization"), "/"+region+"/ec2/")
}
