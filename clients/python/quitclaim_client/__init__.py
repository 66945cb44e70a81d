"""For the app's side of Quitclaim: needs boto3 and nothing else."""
