package openstack

import (
	"cmp"
	"crypto/tls"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"trainyard/internal/fault"
)

// Config says which cloud is meant, who asks, and what servers are made of. Who asks is
// either an entry of a clouds.yaml, or what the OS_ variables of the same names hold.
type Config struct {
	Name string // of the provider in offers; "openstack" if empty

	Cloud string // entry of clouds.yaml
	File  string // which clouds.yaml; "" for the places where `openstack` looks

	AuthURL          string // Keystone: https://cloud.example:5000/v3
	Username         string
	Password         string
	UserDomain       string // name; "Default" if empty
	Project          string // name
	ProjectID        string // in place of the name
	ProjectDomain    string // name; as UserDomain if empty
	CredentialID     string // an application credential in place of user and project
	CredentialSecret string
	Interface        string   // public, internal or admin; "" for public
	Regions          []string // in which servers are made and looked for; the first is meant where none is named
	Image            string   // name or id; of several of one name the newest
	Network          string   // name or id, "none", or "auto", which "" means too
	SecurityGroups   []string
	KeyPair          string // lets people log in; "" for none
	ConfigDrive      bool   // hand the boot script over on a disk, where there is no metadata service
}

// Environ returns the part of a configuration that the usual OS_ variables hold.
func Environ(get func(string) string) Config {
	c := Config{
		Cloud:            get("OS_CLOUD"),
		File:             get("OS_CLIENT_CONFIG_FILE"),
		AuthURL:          get("OS_AUTH_URL"),
		Username:         get("OS_USERNAME"),
		Password:         get("OS_PASSWORD"),
		UserDomain:       get("OS_USER_DOMAIN_NAME"),
		Project:          get("OS_PROJECT_NAME"),
		ProjectID:        get("OS_PROJECT_ID"),
		ProjectDomain:    get("OS_PROJECT_DOMAIN_NAME"),
		CredentialID:     get("OS_APPLICATION_CREDENTIAL_ID"),
		CredentialSecret: get("OS_APPLICATION_CREDENTIAL_SECRET"),
		Interface:        get("OS_INTERFACE"),
	}

	if region := get("OS_REGION_NAME"); region != "" {
		c.Regions = []string{region}
	}

	return c
}

// session returns who asks where; nobody is asked yet.
func (c *Config) session() (*session, error) {
	if c.Cloud != "" {
		return c.fromFile()
	}

	auth := gophercloud.AuthOptions{IdentityEndpoint: c.AuthURL, AllowReauth: true}
	switch {
	case c.AuthURL == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "auth_url is required").
			WithRemedy("name an entry of clouds.yaml, or set OS_AUTH_URL to the address of Keystone")
	case c.CredentialID != "":
		auth.ApplicationCredentialID, auth.ApplicationCredentialSecret = c.CredentialID, c.CredentialSecret
	case c.Username == "" || c.Password == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "credentials are required").
			WithRemedy("set an application credential, or a user name and password")
	case c.ProjectID == "" && c.Project == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "project is required").WithField("project")
	default:
		auth.Username, auth.Password = c.Username, c.Password
		auth.DomainName = cmp.Or(c.UserDomain, "Default")
		auth.Scope = (&gophercloud.AuthScope{ProjectID: c.ProjectID})
		if c.ProjectID == "" {
			auth.Scope = &gophercloud.AuthScope{ProjectName: c.Project, DomainName: cmp.Or(c.ProjectDomain, auth.DomainName)}
		}
	}

	return c.start(auth, cmp.Or(c.Interface, string(gophercloud.AvailabilityPublic)), "", nil)
}

func (c *Config) fromFile() (*session, error) {
	options := []clouds.ParseOption{clouds.WithCloudName(c.Cloud)}
	if c.File != "" {
		options = append(options, clouds.WithLocations(c.File))
	}

	if c.Interface != "" {
		options = append(options, clouds.WithEndpointType(c.Interface))
	}

	auth, endpoint, secure, err := clouds.Parse(options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "openstack_config", "cloud %q: %s", c.Cloud, err).
			WithRemedy("check clouds.yaml").
			WithCause(err)
	}

	auth.AllowReauth = true

	return c.start(
		auth,
		cmp.Or(string(endpoint.Availability), string(gophercloud.AvailabilityPublic)),
		endpoint.Region,
		secure,
	)
}

func (c *Config) start(auth gophercloud.AuthOptions, access, region string, secure *tls.Config) (*session, error) {
	switch gophercloud.Availability(access) {
	case gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin:
	default:
		return nil, fault.New(fault.Invalid, "openstack_config", "interface must be public, internal or admin, got %q",
			access).
			WithField("interface").
			WithRemedy("write interface: public, or remove it")
	}

	s := &session{auth: auth, access: gophercloud.Availability(access), region: region, turn: make(chan struct{}, 1)}

	if secure != nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, fault.New(fault.Internal, "openstack_config", "http.DefaultTransport is not a *http.Transport")
		}

		transport = transport.Clone()
		transport.TLSClientConfig = secure
		s.http.Transport = transport
	}

	return s, nil
}
