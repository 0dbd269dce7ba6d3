{{/*
Values that contradict each other, or what the agent can do: refused when the chart is rendered,
with the reason and what to do, instead of in a pod on every node.
*/}}
{{- define "culvert.refuse" -}}
{{- $v := .Values }}
{{- $cleans := include "culvert.cleans" . }}
{{- include "culvert.refuseAddresses" . }}
{{- include "culvert.refuseArguments" . }}

{{- if not (or $cleans $v.apiServers) }}
{{- $elsewhere := dig "clientConnection" "kubeconfig" "" ($v.config | default dict) }}
{{- range $v.env }}{{ if eq .name "KUBERNETES_SERVICE_HOST" }}{{ $elsewhere = "env" }}{{ end }}{{ end }}
{{- range $v.extraArgs }}{{ if or (hasPrefix "--kubeconfig" .) (hasPrefix "--target" .) }}{{ $elsewhere = "flag" }}{{ end }}{{ end }}
{{- if not $elsewhere }}
{{- fail (join "\n" (list
  "\n\napiServers is required: the API servers' own addresses, or that of a load balancer in front of them."
  "These are not the name and not the ClusterIP of the Service `kubernetes`, such as 10.96.0.1: that works only while a service proxy serves it, and this is that proxy."
  "To find them, ask for what kubectl uses:"
  "  kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'"
  "or for the addresses behind that Service:"
  "  kubectl get endpointslices -n default -l kubernetes.io/service-name=kubernetes"
  "Then: --set 'apiServers={https://10.0.0.1:6443,https://10.0.0.2:6443}'\n")) }}
{{- end }}
{{- end }}
{{- range $v.apiServers }}
{{- $host := . | trimPrefix "https://" | splitList ":" | first | splitList "/" | first }}
{{- if hasPrefix "http://" . }}
{{- fail (printf "apiServers: %s is not https: the agent sends its service account's token over TLS only" .) }}
{{- end }}
{{- if or (eq $host "kubernetes") (hasPrefix "kubernetes.default" $host) }}
{{- fail (printf "apiServers: %s is the Service `kubernetes`, whose address works only while a service proxy serves it, and this is that proxy; name the API servers' own addresses: kubectl get endpointslices -n default -l kubernetes.io/service-name=kubernetes" .) }}
{{- end }}
{{- end }}

{{- with $v.updateStrategy }}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 . }}
{{- if not (has ($surge | toString) (list "0" "0%")) }}
{{- fail (printf "updateStrategy.rollingUpdate.maxSurge: %v: two agents cannot be on one node, because host ports and the pins in the kernel are for one at a time; use maxUnavailable: traffic goes on while an agent is replaced" $surge) }}
{{- end }}
{{- if and $cleans (eq .type "OnDelete") }}
{{- fail "mode: cleanup with updateStrategy.type: OnDelete would clean no node until somebody deletes its pod; use RollingUpdate" }}
{{- end }}
{{- end }}

{{- $rules := include "culvert.rulesAlone" . }}
{{- if and $v.bpffs.mount $rules }}
{{- fail (printf "bpffs.mount: true with mode: %s: a privileged container would mount a file system for programs that this mode does not load; leave bpffs.mount out, or choose mode auto or ebpf" $v.mode) }}
{{- end }}
{{- if and $v.linuxBefore511 (eq $v.mode "nftables") }}
{{- fail "linuxBefore511: true with mode: nftables: rules need no SYS_RESOURCE, and the nftables backend needs Linux 5.13; leave it out, or choose mode auto or ebpf" }}
{{- end }}
{{- if and $v.linuxBefore511 (eq $v.mode "iptables") }}
{{- fail "linuxBefore511: true with mode: iptables: rules need no SYS_RESOURCE; leave it out" }}
{{- end }}
{{- if and $v.mapSizes $rules }}
{{- fail (printf "mapSizes with mode: %s: the maps are those of the eBPF backend, which this mode does not use" $v.mode) }}
{{- end }}
{{- if and (eq $v.image.variant "plain") (eq $v.mode "iptables") }}
{{- fail "image.variant: plain with mode: iptables: that image has no programs of iptables, by which this mode writes its rules; leave image.variant out, or choose `tools`" }}
{{- end }}

{{- if and $v.image.digest $v.image.variant }}
{{- fail "image.digest with image.variant: a digest names one image exactly; take the digest of the variant, and leave image.variant out" }}
{{- end }}
{{- if and $v.image.tag $v.image.variant }}
{{- fail "image.tag with image.variant: a tag is used as it is given; name the tag of the variant, and leave image.variant out" }}
{{- end }}

{{- if and (not $v.healthzBindAddress) (or $v.livenessProbe.enabled $v.readinessProbe.enabled $v.startupProbe.enabled) (not $cleans) }}
{{- fail "healthzBindAddress is empty, which turns the health port off, but probes ask there: set livenessProbe.enabled, readinessProbe.enabled and startupProbe.enabled to false, or leave the port on" }}
{{- end }}
{{- if and $v.healthzBindAddress $v.metricsBindAddress }}
{{- if eq (include "culvert.portOf" $v.healthzBindAddress) (include "culvert.portOf" $v.metricsBindAddress) }}
{{- fail (printf "healthzBindAddress and metricsBindAddress both have port %s: they are two servers" (include "culvert.portOf" $v.metricsBindAddress)) }}
{{- end }}
{{- end }}
{{- range $monitor := list "serviceMonitor" "podMonitor" }}
{{- if and (get $v $monitor).enabled (not (include "culvert.metricsAreReachable" $)) }}
{{- fail (printf "%s.enabled with metricsBindAddress: %q: Prometheus cannot reach that; set metricsBindAddress to 0.0.0.0:10249, and let only Prometheus reach the port" $monitor $v.metricsBindAddress) }}
{{- end }}
{{- end }}
{{- if and $v.serviceMonitor.enabled $v.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled with podMonitor.enabled: every agent would be scraped twice, and every sum be double; choose one" }}
{{- end }}

{{- range $field, $_ := $v.config }}
{{- if has $field (list "apiVersion" "kind" "mode" "clusterCIDR" "detectLocalMode" "detectLocal" "nodePortAddresses" "healthzBindAddress" "metricsBindAddress") }}
{{- fail (printf "config.%s: set the value %s of the chart in its place, on which other parts of the chart depend" $field $field) }}
{{- end }}
{{- if eq $field "hostnameOverride" }}
{{- fail "config.hostnameOverride: the name of each node comes from its pod; one file serves all nodes" }}
{{- end }}
{{- end }}

{{- if and (eq $v.detectLocalMode "BridgeInterface") (not $v.detectLocal.bridgeInterface) }}
{{- fail "detectLocalMode: BridgeInterface needs detectLocal.bridgeInterface" }}
{{- end }}
{{- if and (eq $v.detectLocalMode "InterfaceNamePrefix") (not $v.detectLocal.interfaceNamePrefix) }}
{{- fail "detectLocalMode: InterfaceNamePrefix needs detectLocal.interfaceNamePrefix" }}
{{- end }}
{{- if and $v.detectLocal.bridgeInterface (ne $v.detectLocalMode "BridgeInterface") }}
{{- fail "detectLocal.bridgeInterface counts only with detectLocalMode: BridgeInterface" }}
{{- end }}
{{- if and $v.detectLocal.interfaceNamePrefix (ne $v.detectLocalMode "InterfaceNamePrefix") }}
{{- fail "detectLocal.interfaceNamePrefix counts only with detectLocalMode: InterfaceNamePrefix" }}
{{- end }}

{{- if and $v.syncPeriod (not (regexMatch "[1-9]" $v.syncPeriod)) }}
{{- fail (printf "syncPeriod: %s: must be longer than 0; leave it empty for 30 seconds" $v.syncPeriod) }}
{{- end }}
{{- if eq $v.dnsPolicy "ClusterFirstWithHostNet" }}
{{- fail "dnsPolicy: ClusterFirstWithHostNet: the cluster's DNS is a Service, which this proxy serves; use Default, the node's own resolver, or None with dnsConfig" }}
{{- end }}
{{- if and (eq $v.dnsPolicy "None") (not $v.dnsConfig) }}
{{- fail "dnsPolicy: None needs dnsConfig" }}
{{- end }}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) $v.rbac.create }}
{{- fail "serviceAccount.create: false without serviceAccount.name would give the agent's rights to every pod of the namespace that has the service account `default`; name one, or set rbac.create to false" }}
{{- end }}

{{- range $field := list "commonLabels" "podLabels" }}
{{- range $label, $_ := get $v $field | default dict }}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance") }}
{{- fail (printf "%s: %s: the DaemonSet selects its pods by it; see nameOverride" $field $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $profile := list "appArmorProfile" "seccompProfile" }}
{{- with get $v $profile }}
{{- if and (eq (.type | default "") "Localhost") (not .localhostProfile) }}
{{- fail (printf "%s.type: Localhost needs %s.localhostProfile" $profile $profile) }}
{{- end }}
{{- if and .localhostProfile (ne (.type | default "") "Localhost") }}
{{- fail (printf "%s.localhostProfile counts only with %s.type: Localhost" $profile $profile) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
