"""Give users access to clusters: commands for kubectl and SSH, and entries in the users' files.

`cluster_access` finds clusters and builds commands, `kubeconfig_files` and `ssh_files` change the
files of kubectl and OpenSSH. The commands `kubeconfig`, `ssh-config` and `connect` call this
package.
"""
