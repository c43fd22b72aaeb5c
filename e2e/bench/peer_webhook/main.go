// A webhook that allows everything: what a call costs the API server whoever answers it.
//
// Usage: peer_webhook ADDRESS:PORT. Prints the certificate to trust, base64 of PEM, in one line, and serves.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

// review has what an answer repeats of its question; the rest is decoded and left.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request,omitempty"`
	Response   *answer  `json:"response,omitempty"`
}

type request struct {
	UID    string         `json:"uid"`
	Object map[string]any `json:"object"`
}

type answer struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
}

func allow(w http.ResponseWriter, r *http.Request) {
	var asked review
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review{
		APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &answer{UID: asked.Request.UID, Allowed: true},
	})
}

// certify makes a certificate that signs itself, for one address.
func certify(address net.IP) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{address},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func serve(place string) error {
	host, _, err := net.SplitHostPort(place)
	if err != nil {
		return err
	}
	certificate, err := certify(net.ParseIP(host))
	if err != nil {
		return err
	}
	server := http.Server{Handler: http.HandlerFunc(allow), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	listener, err := net.Listen("tcp", place)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	fmt.Println(base64.StdEncoding.EncodeToString(text))
	return server.ServeTLS(listener, "", "")
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: peer_webhook ADDRESS:PORT")
	}
	log.Fatal(serve(os.Args[1]))
}
